"""The command line, in this process and in a separate one."""

import argparse
import json
import shutil
import subprocess
import sys
from functools import cache

import pytest

from fedtrue.cli import build_parser, main
from fedtrue.spec import FACTORIES


def fedtrue(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "fedtrue", *arguments], capture_output=True, text=True, cwd=cwd, timeout=300
    )


def test_run_prints_one_json_document_and_nothing_else(capsys):
    assert main(["run", "quadratic", "--client", "adam", "--client-rate", "1e-3", "--rounds", "20", "--json"]) == 0
    out = capsys.readouterr()
    answer = json.loads(out.out)
    assert answer["rounds"] == 20
    assert set(answer) >= {"final.train.loss", "distance_from_minimiser", "params", "minimiser", "dropped_clients"}
    assert out.err == ""


def test_a_process_without_a_terminal_prints_no_progress():
    done = fedtrue("run", "quadratic", "--rounds", "5", "--local-steps", "2,3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "distance_from_minimiser" in done.stdout


def test_a_reader_that_closes_the_pipe_gets_no_traceback():
    command = [sys.executable, "-m", "fedtrue", "methods", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "quadratc"], "did you mean 'quadratic'"),
        (["run", "quadratic", "--client", "adma"], "did you mean 'adam'"),
        (["run", "quadratic", "--server", "adan"], "did you mean 'adam'"),
        (["run", "quadratic", "--correction", "jiont"], "did you mean 'joint'"),
        (["run", "quadratic", "--ronds", "3"], "did you mean '--rounds'"),
        (["run", "quadratic", "--rounds", "2.5"], "rounds takes int, not 2.5"),
        (["run", "quadratic", "--rounds", "nan"], "rounds takes int, not nan"),
        (["run", "quadratic", "--rounds", "0"], "rounds must be an integer of at least 1, not 0"),
        (["run", "quadratic", "--rounds", "-3"], "rounds must be an integer of at least 1, not -3"),
        (["run", "quadratic", "--set", "rounds=0"], "rounds must be an integer of at least 1, not 0"),
        (["data", "show", "quadratic", "--examples", "-1"], "--examples must be an integer of at least 0, not -1"),
        (["run", "quadratic", "--seed", "x"], "seed takes int, not 'x'"),
        (["run", "quadratic", "--client-rate", "-1"], "adagrad: learning_rate must be a finite number at least 0"),
        (["run", "quadratic", "--client-rate", "nan"], "adagrad: learning_rate must be a finite number"),
        (["run", "quadratic", "--local-steps", "1,2,3"], "local_steps has 3 entries for 2 clients"),
        (["run", "quadratic", "--local-steps", "0"], "local_steps must be whole numbers at least 1"),
        (["run", "quadratic", "--set", "client.epsilom=1"], "did you mean 'epsilon'"),
        (["run", "quadratic", "--set", "clint.epsilon=1"], "did you mean 'client'"),
        (["run", "quadratic", "--set", "epsilon"], "--set takes KEY=VALUE"),
        (["run", "quadratic", "--set", "task_options.nois=1"], "did you mean 'noise'"),
        (["run", "quadratic", "--set", "task_options.hessians=[[1.0,-2.0]]"], "minima are missing"),
        (["run", "quadratic", "--server", "adam"], "give one, e.g. --client-rate 0.1"),
        (["run", "quadratic", "--precision", "float16"], "did you mean 'bfloat16'"),
        (["run", "nowhere.toml"], "nowhere.toml does not exist"),
        (
            ["run", "quadratic", "--local-steps", "3", "--local-epochs", "2"],
            "local_epochs is not used with local_steps",
        ),
        (["run", "quadratic", "--local-steps", "3", "--set", "local_epochs=2"], "local_epochs is not used with"),
        (
            ["run", "quadratic", "--client", "adam(0.01)", "--client-rate", "0.1"],
            "client's learning rate is given twice",
        ),
        (["run", "quadratic", "--server", "sgd(1.0)", "--server-rate", "0.1"], "server's learning rate is given twice"),
        (["run", "quadratic", "--csv"], "csv writes into the folder of a run: add --out DIR"),
        (["run", "quadratic", "--tensorboard"], "tensorboard writes into the folder of a run: add --out DIR"),
        (["run", "quadratic", "--checkpoint-every", "3"], "checkpoint_every writes into the folder of a run"),
        (["run", "quadratic", "--out", ""], "argument -o/--out: is empty: give a path"),
        (["compare", "quadratic", "--out", ""], "argument -o/--out: is empty: give a path"),
        (["resume", ""], "argument RUN: is empty: give a path"),
        (["rnu"], "invalid choice: 'rnu'"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments, message, capsys):
    try:
        code = main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    error = capsys.readouterr().err
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "FOLDER.toml"], "FOLDER.toml is a folder: give a file"),
        (["run", "quadratic", "--rounds", "1", "--out", "FILE"], "FILE exists, and is not a folder: give another path"),
        (["run", "quadratic", "--rounds", "1", "--out", "FILE/run"], "as a part of its path is a file"),
        (["run", "FOLDER.toml/my.py"], "does not exist: give the Python file"),
        (["table", "FOLDER.toml/RUN", "-o", "FOLDER.toml"], "FOLDER.toml is a folder: give a file"),
        (["sweep", "FOLDER.toml"], "FOLDER.toml is a folder: give a file"),
    ],
)
def test_what_cannot_be_read_or_written_is_named_with_its_cure(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER.toml").mkdir()
    (tmp_path / "FILE").write_text("")
    if "table" in arguments:
        assert main(["run", "quadratic", "--rounds", "1", "-o", "FOLDER.toml/RUN"]) == 0
        capsys.readouterr()
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and "Errno" not in error and error.count("\n") == 1


def test_a_toml_file_and_flags_give_the_same_run(tmp_path, capsys):
    toml = tmp_path / "run.toml"
    toml.write_text(
        'task = "quadratic"\nrounds = 7\nlocal_steps = [2, 3]\ncorrection = "local"\n'
        '[client]\nname = "adam"\nlearning_rate = 0.01\nepsilon = 1e-5\n[task_options]\nnoise = 0.5\n'
    )
    main(["run", str(toml), "--json"])
    from_file = json.loads(capsys.readouterr().out)
    flags = ["--rounds=7", "--local-steps=2,3", "--correction=local", "--client=adam", "--client-rate=0.01"]
    main(["run", "quadratic", *flags, "--set", "client.epsilon=1e-5", "--set", "task_options.noise=0.5", "--json"])
    assert json.loads(capsys.readouterr().out)["params"] == from_file["params"]


@pytest.mark.parametrize("text, message", [("rounds = 3", "names no task"), ("task = [", "is not TOML")])
def test_a_wrong_toml_file_is_named(text, message, tmp_path, capsys):
    (tmp_path / "run.toml").write_text(text)
    assert main(["run", str(tmp_path / "run.toml")]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_toml_key_is_refused_with_the_nearest(tmp_path, capsys):
    (tmp_path / "run.toml").write_text('task = "quadratic"\nround = 3')
    assert main(["run", str(tmp_path / "run.toml")]) == 2
    assert "'round' is not a setting (did you mean 'rounds'?)" in capsys.readouterr().err


def test_methods_and_tasks_print_json(capsys):
    main(["methods", "--json"])
    assert {"fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi"} <= {
        m["name"] for m in json.loads(capsys.readouterr().out)
    }
    main(["tasks", "--json"])
    assert "quadratic" in {t["name"] for t in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["theory", "--help"], ["tasks", "--help"]])
def test_every_command_has_help(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        build_parser().parse_args(arguments)
    assert stopped.value.code == 0
    assert "usage: fedtrue" in capsys.readouterr().out


def parsers(parser):
    """A parser and the parsers of all its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


def test_every_argument_has_a_help_text_and_every_flag_with_a_value_a_metavar_or_choices():
    for parser in parsers(build_parser()):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                continue
            assert action.help, (parser.prog, action.dest)
            if action.option_strings and action.nargs != 0:
                assert action.choices or action.metavar.isupper(), (parser.prog, action.dest)
                has_default = "default" in action.help or action.required
                assert has_default or action.dest in ("settings", "document"), (parser.prog, action.dest)


@pytest.mark.parametrize("option", ["correction", "trace", "sampling", "weighting"])
def test_the_help_of_a_flag_names_every_part_that_it_takes(option):
    text = fedtrue("run", "--help").stdout.partition(f"  --{option} NAME  ")[2].partition("(default: ")[0]
    ours = {name for name, factory in FACTORIES[option].items() if factory.__module__.startswith("fedtrue.")}
    assert ours and ours <= set(text.replace(",", " ").split()), text


def test_a_warning_is_one_line_without_a_place_in_the_code():
    twice = ["--client", "sgd", "--sampling", "by_size", "--weighting", "examples"]
    told = fedtrue("run", "quadratic", *twice, "--rounds", "1").stderr
    assert "fedtrue: sampling 'by_size' with weighting 'examples' counts a client's size twice\n" in told


def test_out_is_o_for_short_in_every_command():
    flags = [action.option_strings for parser in parsers(build_parser()) for action in parser._actions]
    assert {tuple(names) for names in flags if "--out" in names} == {("-o", "--out")}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "command, names", [("methods", ["--client-state", "preconditioned", "restart"]), ("tasks", ["stackoverflow_words"])]
)
def test_names_and_flags_are_not_split_over_lines_in_listings(command, names, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([command]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    assert all(name in text for name in names)


@cache
def completion_script():
    return fedtrue("completion", "bash").stdout


def completed(words):
    """What bash offers for the last of these words, by the script that `fedtrue completion bash` prints."""
    pytest.importorskip("shtab", reason="needs the extra `completion`")
    script = completion_script()
    call = f'COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _shtab_fedtrue; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{call}"], capture_output=True, text=True, timeout=60)
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_commands_tasks_methods_parts_and_flags():
    assert completed(["fedtrue", "resu"]) == ["resume"]
    assert completed(["fedtrue", "run", "shak"]) == ["shakespeare"]
    assert completed(["fedtrue", "run", "shakespeare", "--method", "scaf"]) == ["scaffold"]
    assert completed(["fedtrue", "run", "shakespeare", "--client", "ada"]) == ["adagrad", "adam", "adabelief"]
    assert completed(["fedtrue", "run", "shakespeare", "--early"]) == ["--early-stop"]

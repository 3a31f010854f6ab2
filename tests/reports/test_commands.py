"""`fedtrue report` and `fedtrue table` from the command line."""

import json
import re

import pytest
from PIL import Image

from fedtrue.cli import main
from tests.reports.made_runs import write_run


def test_report_writes_the_page_and_the_pictures(made_runs, tmp_path, capsys):
    page, pictures = tmp_path / "deep" / "report.html", tmp_path / "pictures"
    arguments = [
        "-o",
        str(page),
        "--pictures",
        str(pictures),
        "--threshold",
        "0.2",
        "--title",
        "Rates & runs",
        "--json",
    ]
    assert main(["report", str(made_runs["sweep"]), *arguments]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["runs"] == 56
    assert [panel["text"] for panel in answer["heat_maps"]] == ["8 of 28 cells above 20 %", "0 of 28 cells above 20 %"]
    assert "<h1>Rates &amp; runs</h1>" in page.read_text()
    assert sorted(path.name for path in pictures.iterdir()) == [
        f"{name}.{kind}" for name in ("curves-bytes", "curves-rounds", "heat-maps") for kind in ("pdf", "png")
    ]
    assert Image.open(pictures / "heat-maps.png").width > 600
    assert (pictures / "heat-maps.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("metric", ["test.loss", "train.loss"])  # the same in all cells: a scale without a range
def test_heat_maps_of_losses_are_drawn_and_counted_below(metric, made_runs, tmp_path, capsys):
    arguments = ["-o", str(tmp_path / "r.html"), "--pictures", str(tmp_path), "--formats", "png", "--metric", metric]
    assert main(["report", str(made_runs["sweep"]), *arguments, "--json"]) == 0
    assert all(
        "below" in panel["text"] and panel["count"] > 0 for panel in json.loads(capsys.readouterr().out)["heat_maps"]
    )
    assert (tmp_path / "heat-maps.png").exists()


def test_pictures_have_the_requested_formats_and_the_same_bytes_every_time(made_runs, tmp_path, capsys):
    for folder in ("one", "two"):
        arguments = ["-o", str(tmp_path / "r.html"), "--pictures", str(tmp_path / folder), "--formats", "svg,pdf"]
        assert main(["report", str(made_runs["methods"]), *arguments]) == 0
    for name in ("curves-rounds.svg", "curves-rounds.pdf"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    capsys.readouterr()


def test_y_range_shows_that_part_of_the_vertical_axis(made_runs, tmp_path, capsys):
    arguments = [
        "-o",
        str(tmp_path / "r.html"),
        "--pictures",
        str(tmp_path),
        "--formats",
        "svg",
        "--y-range",
        "0.5,0.52",
    ]
    assert main(["report", str(made_runs["methods"]), *arguments]) == 0
    ticks = set(re.findall(r">(\d+\.\d+)</text>", (tmp_path / "curves-rounds.svg").read_text()))
    assert {"50.0", "52.0"} <= {f"{float(tick):.1f}" for tick in ticks}
    assert all(50 <= float(tick) <= 52 for tick in ticks)
    capsys.readouterr()
    for wrong in ("0.5", "0.6,0.5", "50,60", "a,b"):
        assert main(["report", str(made_runs["methods"]), *arguments[:-1], wrong]) == 2
        assert "--y-range" in capsys.readouterr().err


def test_table_prints_what_it_would_write(made_runs, tmp_path, capsys):
    runs = [str(path) for path in sorted(made_runs["methods"].iterdir())]  # as a shell expands runs/*
    assert main(["table", *runs, "--format", "latex"]) == 0
    printed = capsys.readouterr().out
    assert main(["table", *runs, "--format", "latex", "-o", str(tmp_path / "t.tex")]) == 0
    assert (tmp_path / "t.tex").read_text() == printed
    assert r"57.87 $\pm$ 0.03" in printed


def test_table_prints_json(made_runs, capsys):
    assert (
        main(["table", str(made_runs["methods"]), "--columns", "run,test.loss", "--sort", "test.loss", "--json"]) == 0
    )
    rows = json.loads(capsys.readouterr().out)
    losses = [row["mean_last.test.loss"]["value"] for row in rows if row["mean_last.test.loss"]]
    assert losses == sorted(losses)
    assert rows[-1]["mean_last.test.loss"] is None  # the run that diverged


def test_a_bare_metric_is_its_mean_over_the_last_evaluations_wherever_a_column_is_named(tmp_path, capsys):
    falling = [0.5] * 99 + [0.1]  # mean 0.496, final 0.1
    write_run(tmp_path / "falling", falling, label="falling")
    write_run(tmp_path / "level", [0.3] * 100, label="level", correction="none")
    orders = {}
    for sort in ("test.accuracy", "mean_last.test.accuracy", "final.test.accuracy"):
        assert main(["table", str(tmp_path), "--columns", "run,test.accuracy", "--sort", sort, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert list(rows[0]) == ["run", "mean_last.test.accuracy"]
        orders[sort] = [row["run"] for row in rows]
    assert orders["test.accuracy"] == orders["mean_last.test.accuracy"] == ["falling", "level"]
    assert orders["final.test.accuracy"] == ["level", "falling"]


def test_the_help_says_what_a_bare_metric_means(capsys):
    with pytest.raises(SystemExit):
        main(["table", "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    assert "mean_last.test.accuracy, the mean of its evaluations in the last 100 rounds" in help_text
    assert "The bare name test.accuracy is short for the first one" in help_text


def test_a_target_replaces_the_total_costs_by_the_costs_until_it(made_runs, capsys):
    assert main(["table", str(made_runs["methods"]), "--target", "0.55", "--json"]) == 0
    rows = {row["run"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows["client SGD"])[-3:] == ["rounds_to", "bytes_to", "seconds_to"]
    assert rows["client SGD"]["seconds_to"]["value"] == pytest.approx(rows["client SGD"]["rounds_to"]["value"] / 2)
    missed = {"value": None, "deviation": None, "seeds": 1, "reached": 0}
    assert rows["client Yogi + joint correction"]["rounds_to"] == missed


def test_table_and_report_have_the_same_heat_maps(made_runs, tmp_path, capsys):
    sweep, threshold = str(made_runs["sweep"]), ["--threshold", "0.2", "--json"]
    assert main(["report", sweep, "-o", str(tmp_path / "r.html"), *threshold]) == 0
    reported = json.loads(capsys.readouterr().out)["heat_maps"]
    assert main(["table", sweep, "--heat-map", *threshold]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [{key: panel[key] for key in reported[0]} for panel in shown] == reported
    assert main(["table", sweep, "--heat-map", "--threshold", "0.2", "-o", str(tmp_path / "t.md")]) == 0
    assert (tmp_path / "t.md").read_text().count("of 28 cells above 20 %") == 2


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["report", "nowhere"], "nowhere is not a run folder"),
        (["table", "nowhere"], "nowhere is not a run folder"),
        (["table", "RUNS", "--metric", "test.acuracy"], "did you mean 'test.accuracy'"),
        (["table", "RUNS", "--columns", "rnu"], "did you mean 'run'"),
        (["table", "RUNS", "--sort", "referenc"], "did you mean 'reference'"),
        (["table", "RUNS", "--format", "latx"], "invalid choice"),
        (["table", "RUNS", "--target", "57"], "write 0.57 for 57 %"),
        (["table", "RUNS", "--target", "nan"], "--target must be a finite number"),
        (["table", "RUNS", "--columns", "rounds_to"], "add --target"),
        (["table", "RUNS", "--threshold", "0.2"], "add --heat-map, or give --target"),
        (["table", "RUNS", "--ranked", "--sort", "test.accuracy"], "--ranked is for --best-per"),
        (["table", "RUNS", "--columns", "tried"], "add --best-per and --sort"),
        (["table", "RUNS", "--best-per", "client.name"], "--best-per needs --sort"),
        (["table", "RUNS", "--best-per", "clent.name", "--sort", "test.accuracy"], "did you mean 'client.name'"),
        (["table", "RUNS", "--heat-map"], "two client rates and two server rates"),
        (["table", "RUNS", "--heat-map", "--threshold", "20"], "--threshold 20: test.accuracy is a fraction of 1"),
        (["table", "RUNS", "--heat-map", "--format", "csv"], "Markdown or JSON, not as csv"),
        (["table", "RUNS", "--heat-map", "--sort", "run"], "leave out --sort"),
        (["report", "RUNS", "--formats", "pgn"], "did you mean 'png'"),
        (["report", "RUNS", "--threshold", "20"], "write 0.2 for 20 %"),
        (["report", "RUNS", "--threshold", "nan"], "must be a finite number"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments, message, made_runs, capsys):
    try:
        code = main([str(made_runs["methods"]) if part == "RUNS" else part for part in arguments])
    except SystemExit as stopped:
        code = stopped.code
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1)
    assert message in error

"""Tables and reports of an archive equal those of its run folders."""

import re

import numpy as np
import pytest

from fedtrue.cli import main
from fedtrue.runner.archive import SUFFIX, Archive, ArchivedRun, to_bytes
from fedtrue.runner.records import CONFIG, METRICS, SUMMARY, SWEEP, find_runs, read_run, read_summary, run_lines
from tests.reports.made_runs import methods, sweep


def archived(folder, path):
    """All run folders in `folder` as one archive, nothing rounded or left out."""
    runs = {
        run.name: ArchivedRun(
            run.name, (run / CONFIG).read_text(), read_summary(run), "committed", (run / METRICS).read_bytes()
        )
        for run in folder.iterdir()
        if (run / SUMMARY).exists()
    }
    text = (folder / SWEEP).read_text() if (folder / SWEEP).exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(to_bytes(Archive(text, runs)))
    return path


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same runs as folders and as archives: {kind: (folder, archive)}."""
    top = tmp_path_factory.mktemp("both")
    folders = {"sweep": sweep(top / "folders" / "sweep", rounds=20), "methods": methods(top / "folders" / "methods")}
    for path in (folders["methods"] / "yogi-joint-0").iterdir():  # it has not ended, so no archive holds it
        path.unlink()
    return {kind: (folder, archived(folder, top / "archives" / f"{kind}{SUFFIX}")) for kind, folder in folders.items()}


@pytest.mark.parametrize("kind", ["sweep", "methods"])
def test_a_run_in_an_archive_equals_the_run_in_its_folder(both, kind):
    folder, archive = both[kind]
    in_folder, in_archive = find_runs([folder]), find_runs([archive])
    assert [path.name for path in in_archive] == [path.name for path in in_folder]
    for ours, theirs in zip(map(read_run, in_archive), map(read_run, in_folder)):
        for field in ("name", "config", "origin", "summary", "config_text", "from_sweep"):
            assert getattr(ours, field) == getattr(theirs, field)
        assert ours.from_sweep == (kind == "sweep")
        assert (ours.config_file, theirs.config_file) == (archive, theirs.path / CONFIG)
        np.testing.assert_equal(ours.rounds, theirs.rounds)
        np.testing.assert_equal(ours.evaluations, theirs.evaluations)
        np.testing.assert_equal(run_lines(ours.path), run_lines(theirs.path))


@pytest.mark.parametrize("kind", ["sweep", "methods"])
@pytest.mark.parametrize("arguments", [[], ["--format", "csv"], ["--columns", "run,seed,commit,command"], ["--json"]])
def test_a_table_of_an_archive_has_the_bytes_of_the_folders_table(both, kind, arguments, capsys):
    tables = []
    for path in both[kind]:
        assert main(["table", str(path), *arguments]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]


def test_a_folder_of_archives_has_the_table_of_the_folder_of_sweeps(both, capsys):
    tables = []
    for path in both["sweep"]:
        assert main(["table", str(path.parent)]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]


@pytest.mark.parametrize("kind", ["sweep", "methods"])
def test_a_report_of_an_archive_has_the_bytes_of_the_folders_report_except_for_the_links(both, kind, tmp_path, capsys):
    pages = []
    for place, path in enumerate(both[kind]):
        target = tmp_path / f"{place}.html"
        assert main(["report", str(path), "-o", str(target)]) == 0
        pages.append(re.sub(r'<p><a href="([^"]*)">\1</a></p>', "<p>link</p>", target.read_text().replace("%20", " ")))
    assert pages[0].count("<p>link</p>") == len(find_runs([both[kind][0]]))
    assert pages[0] == pages[1]
    assert f"archives/{kind}{SUFFIX}" in (tmp_path / "1.html").read_text()
    capsys.readouterr()


# --- which paths are taken --------------------------------------------------------------------------------------------


def test_a_run_of_an_archive_can_be_named_by_itself(both):
    _, archive = both["methods"]
    assert find_runs([archive / "sgd-none-0"]) == [archive / "sgd-none-0"]
    with pytest.raises(ValueError, match=r"methods\.runs\.xz holds no run 'sgd-0' \(did you mean 'sgd-none-0'\?\)"):
        find_runs([archive / "sgd-0"])


def test_archives_and_run_folders_in_a_folder_are_sorted_by_name(both, tmp_path):
    _, archive = both["methods"]
    for name in ("a-b", "a", "c"):
        (tmp_path / f"{name}{SUFFIX}").write_bytes(archive.read_bytes())
    (tmp_path / "b" / "run").mkdir(parents=True)
    (tmp_path / "b" / "run" / CONFIG).write_text("")
    tops = dict.fromkeys(path.relative_to(tmp_path).parts[0] for path in find_runs([tmp_path]))
    assert list(tops) == [f"a{SUFFIX}", f"a-b{SUFFIX}", "b", f"c{SUFFIX}"]  # as the folders a, a-b, b, c


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (f"none{SUFFIX}", None, "does not exist: `fedtrue pack RUNS -o"),
        ("none", None, "is not a run folder and holds none"),
        ("notes.txt", b"text", "is not an archive of runs: give a run folder, or a file that `fedtrue pack` wrote"),
        (f"cut{SUFFIX}", b"\xfd7zXZ\x00\x00\x04", "is damaged"),
    ],
)
def test_a_missing_truncated_or_foreign_file_is_refused_in_one_line(tmp_path, capsys, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    for command in (["table"], ["report", "-o", str(tmp_path / "report.html")]):
        assert main([*command, str(tmp_path / name)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert name in line and message in line


def test_a_config_that_is_not_toml_is_refused_with_its_archive_and_run(tmp_path):
    path = tmp_path / f"x{SUFFIX}"
    path.write_bytes(to_bytes(Archive(None, {"a": ArchivedRun("a", "= 1", {}, "committed", b"")})))
    with pytest.raises(ValueError, match=r"x\.runs\.xz/a: its config is not TOML"):
        read_run(path / "a")

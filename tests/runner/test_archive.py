"""The archive format: archives are read back unchanged, the same runs give the same bytes, damage is refused."""

import json
import lzma

import pytest

from fedtrue.runner.archive import SUFFIX, Archive, ArchivedRun, read, to_bytes

LINES = b'{"round":0,"loss":1.5}\n{"round":1,"loss":null}\n'
SGD = ArchivedRun("000-sgd", 'label = "η = 0.1"\n', {"status": "finished"}, "committed", LINES)
ADAM = ArchivedRun("001-adam", 'task = "mnist"\n', {"status": "diverged"}, "uncommitted", b"")
SWEEP = Archive('task = "mnist"\n# client ε\n', {run.name: run for run in (SGD, ADAM)})


@pytest.fixture
def path(tmp_path):
    path = tmp_path / f"rates{SUFFIX}"
    path.write_bytes(to_bytes(SWEEP))
    return path


def rewritten(path, change):
    """The archive with its decompressed lines changed."""
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    path.write_bytes(lzma.compress("".join(f"{line}\n" for line in change(lines)).encode()))


@pytest.mark.parametrize("archive", [SWEEP, Archive(None, {"000-sgd": SGD})])
def test_an_archive_is_read_back_as_written(tmp_path, archive):
    path = tmp_path / f"any{SUFFIX}"
    path.write_bytes(to_bytes(archive))
    assert read(path) == archive


def test_the_same_runs_give_the_same_bytes_in_any_order():
    assert to_bytes(SWEEP) == to_bytes(Archive(SWEEP.sweep, {run.name: run for run in (ADAM, SGD)}))


def test_a_decompressed_archive_is_json_lines_with_a_header_and_each_run_followed_by_its_rounds(path):
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    header, sgd, first, second, adam = map(json.loads, lines)
    assert header == {"format": "fedtrue runs", "version": 1, "sweep": SWEEP.sweep, "runs": 2}
    assert (sgd["run"], sgd["tree"], sgd["config"], sgd["lines"]) == ("000-sgd", "committed", SGD.config, 2)
    assert (first["round"], second["loss"]) == (0, None)
    assert (adam["run"], adam["lines"]) == ("001-adam", 0)
    assert "η" in lines[1]  # readable for grep, not \u03b7


def test_an_archive_that_has_changed_is_read_again(path):
    assert len(read(path).runs) == 2
    path.write_bytes(to_bytes(Archive(None, {"000-sgd": SGD})))
    assert len(read(path).runs) == 1


def test_an_archive_that_does_not_exist_is_named_with_the_command_that_writes_it(tmp_path):
    with pytest.raises(ValueError, match=r"none\.runs\.xz does not exist: `fedtrue pack RUNS -o .*` writes it"):
        read(tmp_path / f"none{SUFFIX}")


def test_an_archive_truncated_at_any_byte_is_refused(path):
    whole = path.read_bytes()
    for length in range(8, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"rates\.runs\.xz is damaged .*: copy it again, or write it again with"):
            read(path)


def test_an_archive_with_a_changed_byte_is_refused(path):
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 255
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="is damaged"):
        read(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:-2],  # a run's rounds are missing
        lambda lines: lines[:-1],  # a run is missing
        lambda lines: [*lines, lines[-1]],  # a run occurs twice
        lambda lines: [lines[0], "[]", *lines[2:]],
        lambda lines: [lines[0], "{}", *lines[2:]],
        lambda lines: [lines[0], "no JSON", *lines[2:]],
    ],
)
def test_inconsistent_lines_are_refused(path, change):
    rewritten(path, change)
    with pytest.raises(ValueError, match=r"rates\.runs\.xz is damaged"):
        read(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"task = 'mnist'", lzma.compress(b""), lzma.compress(b"text\n"), lzma.compress(b"[]"), lzma.compress(b"{}")],
)
def test_a_file_of_another_format_is_refused_with_the_cure(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not an archive of runs: give a run folder, or a file that `fedtrue pack`"):
        read(path)


def test_an_archive_of_a_newer_format_version_asks_to_update_fedtrue(path):
    rewritten(path, lambda lines: [lines[0].replace('"version":1', '"version":2'), *lines[1:]])
    with pytest.raises(ValueError, match=r"has format version 2, this fedtrue reads 1: update fedtrue"):
        read(path)

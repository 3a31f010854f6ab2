import errno
import json
import os
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtrue.data import cache, columns
from fedtrue.data.cache import cached
from fedtrue.data.columns import Fixed, Varying

SCHEMA = {"x": Fixed((2,), np.uint16), "words": Varying(np.int32)}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDTRUE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.bin"
    path.write_bytes(b"first")
    return path


def numbered(clients):
    """One example per entry of `clients`, in that order; example n has x = (n, n + 1) and n % 4 words."""
    return [(client, {"x": [n, n + 1], "words": np.full(n % 4, n)}) for n, client in enumerate(clients)]


def convert(source, examples, name="numbers", version=1, settings=None, **more):
    return cached(name, [source], version, settings or {}, SCHEMA, lambda: examples, **more)


def contents(data):
    return {
        name: [(row.tolist(), words.tolist()) for row, words in zip(client["x"], client["words"])]
        for name, client in ((name, data.client(i)) for i, name in enumerate(data.client_ids))
    }


def grouped(examples):
    """A simple model of the conversion: clients sorted by name, each with its examples in the order of the source."""
    groups: dict[str, list] = {}
    for client, example in examples:
        groups.setdefault(client, []).append((list(example["x"]), example["words"].tolist()))
    return dict(sorted(groups.items()))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["b", "a", "é", "", "zz"]), min_size=1, max_size=40),
    st.integers(1, 9),
    st.integers(1, 64),
)
def test_a_conversion_groups_by_client_and_keeps_the_order_for_any_chunk_size(clients, chunk_rows, chunk_bytes):
    import tempfile

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "CHUNK_EXAMPLES", chunk_rows)
        patch.setattr(columns, "MOVED_EXAMPLES", chunk_rows)
        patch.setattr(columns, "MOVED_BYTES", chunk_bytes)
        columns.write(Path(folder), SCHEMA, numbered(clients), None)
        data = columns.open_columns(Path(folder), SCHEMA)
        assert contents(data) == grouped(numbered(clients))
        assert list(data.client_ids) == sorted(set(clients))
        assert data.columns["words"].width == max(n % 4 for n in range(len(clients)))
        assert not [path for path in Path(folder).iterdir() if path.name.startswith(("codes", "destinations"))]


@pytest.mark.parametrize("clients", ["aabbb", "abcabca"])
@pytest.mark.parametrize("size", [1, 3, 99])
def test_chunks_give_the_same_data_as_their_examples(source, clients, size):
    examples = numbered(clients)
    chunks = [
        columns.Chunk([client for client, _ in batch], {name: [row[name] for _, row in batch] for name in SCHEMA})
        for batch in columns.batched(examples, size)
    ]
    assert contents(convert(source, chunks)) == grouped(examples)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"x": [[1, 2]]}, "a chunk has no column 'words'"),
        ({"x": [[1, 2]], "words": []}, "0 rows of 'words' for 1 examples"),
    ],
)
def test_a_chunk_with_missing_values_is_refused(source, values, message):
    with pytest.raises(ValueError, match=message):
        convert(source, [columns.Chunk(["a"], values)])


def test_the_second_call_opens_the_data_without_converting(source):
    first = convert(source, numbered("abab"))
    second = cached("numbers", [source], 1, {}, SCHEMA, lambda: pytest.fail("converted twice"))
    assert contents(first) == contents(second)


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"settings": {"length": 21}}, {"name": "others"}], ids=["version", "settings", "name"]
)
def test_another_version_setting_or_name_is_another_cache(source, change):
    convert(source, numbered("a"))
    assert contents(convert(source, numbered("bb"), **change)) == grouped(numbered("bb"))


def test_a_changed_source_is_converted_again(source):
    """Even if its name, size and modification time are the same."""
    convert(source, numbered("a"))
    before = source.stat()
    source.write_bytes(b"other")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cache.source_identity(source)["changed_ns"] == before.st_mtime_ns
    assert contents(convert(source, numbered("bb"))) == grouped(numbered("bb"))


@given(st.integers(1, 400), st.data())
@settings(deadline=None)
def test_every_byte_of_a_small_source_changes_its_identity(size, draw):
    import tempfile

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "FINGERPRINT_BLOCKS", 100)
        patch.setattr(cache, "FINGERPRINT_BLOCK_BYTES", 4)
        path = Path(folder) / "source"
        path.write_bytes(bytes(size))
        blank = cache.source_identity(path)["sample_sha256"]
        changed = bytearray(size)
        changed[draw.draw(st.integers(0, size - 1))] = 1
        path.write_bytes(changed)
        assert cache.source_identity(path)["sample_sha256"] != blank


def test_a_source_moved_to_another_folder_is_not_converted_again(source, tmp_path):
    convert(source, numbered("ab"))
    (tmp_path / "elsewhere").mkdir()
    moved = source.rename(tmp_path / "elsewhere" / source.name)
    cached("numbers", [moved], 1, {}, SCHEMA, lambda: pytest.fail("converted twice"))


def test_the_folder_records_what_it_was_made_from(source, root):
    convert(source, numbered("aab"), settings={"length": 21})
    (folder,) = root.glob("numbers-*")
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["clients"], meta["examples"], meta["version"], meta["settings"]) == (2, 3, 1, {"length": 21})
    assert meta["sources"][0]["file"] == "source.bin"
    assert meta["columns"]["x"] == {"dtype": "<u2", "shape": [2]}


@pytest.mark.parametrize("damage", ["truncate", "remove", "damage meta"])
def test_a_damaged_folder_is_built_again(source, root, damage):
    convert(source, numbered("aba"))
    (folder,) = root.glob("numbers-*")
    if damage == "truncate":
        os.truncate(folder / "x.npy", (folder / "x.npy").stat().st_size - 1)
    elif damage == "remove":
        (folder / "words.splits.npy").unlink()
    else:
        (folder / "meta.json").write_text("{")
    assert contents(convert(source, numbered("aba"))) == grouped(numbered("aba"))
    assert cache.is_intact(folder)


def test_a_conversion_that_fails_leaves_nothing_behind(source, root):
    def breaks():
        yield from numbered("ab")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, breaks())
    assert [path.name for path in root.iterdir()] == [".locks"]
    assert contents(convert(source, numbered("ab"))) == grouped(numbered("ab"))


def test_progress_counts_the_examples(source, monkeypatch):
    monkeypatch.setattr(columns, "CHUNK_EXAMPLES", 2)
    reported = []
    convert(source, numbered("abcde"), progress=reported.append)
    assert reported == [2, 4, 5]


@pytest.mark.parametrize(
    "examples, message",
    [
        ([], "has no examples"),
        ([("a", {"x": [1, 2]})], "client 'a' has no column 'words'"),
        ([("a", {"x": [1, 2, 3], "words": []})], r"'x' has an example of shape \(3,\), not \(2,\)"),
        ([("a", {"x": [1, 2], "words": [1]}), ("a", {"x": [1], "words": [1]})], "'x' has examples of different shapes"),
        ([("a", {"x": [1, 70_000], "words": [1]})], "'x' has a value that uint16 cannot hold"),
        ([("a", {"x": [1, -1], "words": [1]})], "'x' has a value that uint16 cannot hold"),
        ([("a", {"x": [1, 2], "words": [[1]]})], "'words' has an example that is not a 1-d row"),
    ],
)
def test_examples_that_do_not_fit_the_schema_are_refused_by_column(source, root, examples, message):
    with pytest.raises(ValueError, match=message):
        convert(source, examples)
    assert not list(root.glob("numbers-*"))


def test_a_column_name_that_cannot_be_a_file_name_is_refused(source):
    with pytest.raises(ValueError, match=r"column name '\.\./x' is not an identifier"):
        cached("numbers", [source], 1, {}, {"../x": Fixed((), np.int8)}, list)


def test_a_missing_source_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"FEDTRUE_DATA.*gone\.bin"):
        convert(tmp_path / "gone.bin", [])


def test_a_full_disk_names_the_cure(source, root):
    def fills_the_disk():
        yield from numbered("a")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left on device; free some space there or set FEDTRUE_CACHE"):
        convert(source, fills_the_disk())
    assert not list(root.glob("numbers-*"))


def test_the_cache_is_in_the_folder_of_the_environment_variable_else_in_the_users(monkeypatch, root):
    assert cache.cache_root() == root
    monkeypatch.delenv("FEDTRUE_CACHE")
    assert "fedtrue" in cache.cache_root().parts
    assert cache.cache_root().is_relative_to(Path.home())


def test_opening_as_many_clients_as_stack_overflow_has_reads_only_their_offsets(tmp_path):
    clients = 342_477
    names = [f"{n:08d}" for n in range(clients)]
    row, words = np.zeros(2, np.uint16), np.zeros(1, np.int32)
    columns.write(tmp_path, SCHEMA, ((name, {"x": row, "words": words}) for name in names), None)
    tracemalloc.start()
    data = columns.open_columns(tmp_path, SCHEMA)
    memory_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(data) == clients
    assert memory_bytes < 2 * 8 * clients + 1_000_000  # starts and sizes, int64 each; everything else is mapped
    mapped = [data.columns["x"], data.columns["words"].values, data.columns["words"].splits, data.client_ids.utf8]
    assert all(isinstance(array, np.memmap) for array in [*mapped, data.client_ids.starts, data.client_ids.stops])
    assert data.client_ids[clients - 1] == "00342476"


CONVERTER = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    import numpy as np
    from fedtrue.data.cache import cached
    from fedtrue.data.columns import Fixed

    source, log, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

    def examples():
        with log.open("a") as file:
            file.write("converting\\n")
        for n in range(5):
            yield f"c{n % 2}", {"x": n}
            time.sleep(seconds / 5)

    data = cached("slow", [source], 1, {}, {"x": Fixed((), np.int64)}, examples)
    print([data.client(i)["x"].tolist() for i in range(len(data))])
    """
)


def start_converter(source, log, seconds):
    command = [sys.executable, "-c", CONVERTER, str(source), str(log), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None, "the converter ended early"
        os.sched_yield()


def test_two_concurrent_processes_convert_once_and_read_the_same(source, tmp_path):
    log = tmp_path / "log"
    processes = [start_converter(source, log, 0.5) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert outputs == ["[[0, 2, 4], [1, 3]]\n"] * 2
    assert log.read_text().splitlines() == ["converting"]


def test_an_incomplete_folder_of_a_killed_conversion_is_never_opened_and_later_removed(source, root, tmp_path):
    log = tmp_path / "log"
    builder = start_converter(source, log, 600)
    wait_for(log, builder)
    convert(source, numbered("a"))
    assert len(list(root.glob("slow-*.partial"))) == 1  # its builder is alive, so another conversion does not remove it
    builder.kill()
    builder.wait()
    assert len(list(root.glob("slow-*"))) == 1  # still incomplete, under a name that is never opened
    convert(source, numbered("a"), version=2)
    assert not list(root.glob("slow-*"))
    assert start_converter(source, log, 0).communicate(timeout=60)[0] == "[[0, 2, 4], [1, 3]]\n"


def test_a_killed_conversion_is_done_again(source, root, tmp_path):
    log = tmp_path / "log"
    builder = start_converter(source, log, 600)
    wait_for(log, builder)
    builder.kill()
    builder.wait()
    assert start_converter(source, log, 0).communicate(timeout=60)[0] == "[[0, 2, 4], [1, 3]]\n"
    assert not list(root.glob("*.partial"))

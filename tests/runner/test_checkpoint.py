"""A checkpoint restores exactly the saved state, or it is refused as damaged."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedtrue.algorithm.interface import ServerState
from fedtrue.engine import store
from fedtrue.engine.round import State
from fedtrue.engine.store import rows_of, with_rows
from fedtrue.runner import checkpoint
from fedtrue.runner.checkpoint import check_clients, newest, newest_of_all, rounds_saved, save

CLIENTS = 8


def start(clients=CLIENTS, weights=4):
    """The state of a run before round 0, with client memory and several dtypes."""
    params = {"w": np.zeros((2, weights), np.float32), "b": np.zeros(3, np.float64)}
    optimizer = ({"count": np.int32(0)}, np.zeros((), bool))
    memory = {"v": np.full((clients, weights), 0.1, np.float32), "count": np.zeros(clients, np.float32)}
    return State(ServerState(params, optimizer, ()), memory)


def after(rounds, seen, clients=CLIENTS, weights=4):
    """Another state, in which only the memory of the clients `seen` differs from the initial one."""
    random = np.random.default_rng(rounds)
    other = lambda leaf: (100 * random.normal(size=np.shape(leaf))).astype(np.asarray(leaf).dtype)
    first = start(clients, weights)
    state = jax.tree.map(other, first)
    for changed, at_first in zip(jax.tree.leaves(state.memory), jax.tree.leaves(first.memory)):
        changed[np.setdiff1d(np.arange(clients), seen)] = at_first[np.setdiff1d(np.arange(clients), seen)]
    return state


def saved(folder, rounds, seen, **sizes):
    """The state, after it was written as in a run."""
    state, seen = after(rounds, seen, **sizes), np.asarray(seen)
    save(folder, rounds, state._replace(memory=rows_of(state.memory, seen)), seen)
    return state


def restored(found, first):
    """As when a run resumes: the state in the checkpoint, with the shapes of the initial state."""
    clients = len(jax.tree.leaves(first.memory)[0]) if jax.tree.leaves(first.memory) else CLIENTS
    check_clients(found, clients)
    state = checkpoint.restored(found, first._replace(memory=rows_of(first.memory, found.clients)))
    return state._replace(memory=with_rows(first.memory, found.clients, state.memory))


def same(a, b):
    equal = jax.tree.map(lambda x, y: bool(np.array_equal(x, y)) and np.asarray(x).dtype == np.asarray(y).dtype, a, b)
    return all(jax.tree.leaves(equal))


def test_the_saved_state_is_restored_exactly_with_the_memory_of_clients_that_never_took_part(tmp_path):
    state = saved(tmp_path, 40, [1, 2, 6])
    found = newest(tmp_path, pytest.fail)
    assert found.round == 40
    assert list(found.clients) == [1, 2, 6]
    assert same(restored(found, start()), state)


def test_the_last_two_checkpoints_are_kept(tmp_path):
    for rounds in (10, 20, 30, 5_000_000_000):
        saved(tmp_path, rounds, [0])
    assert rounds_saved(tmp_path) == [30, 5_000_000_000]
    assert len(list(tmp_path.iterdir())) == 4


def test_partial_files_of_a_crash_are_deleted_by_the_next_save(tmp_path):
    for name in ("00000007.safetensors", "00000009.safetensors.part", "00000009.json.part"):
        (tmp_path / name).write_bytes(b"half")
    saved(tmp_path, 10, [0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000010.json", "00000010.safetensors"]


def test_no_flipped_byte_in_either_file_gives_another_state(tmp_path):
    """Each is detected and the previous checkpoint is used, or it has no effect."""
    before, newer = saved(tmp_path, 10, [3]), saved(tmp_path, 20, [1, 3])
    fell_back = 0
    for path in sorted(tmp_path.glob("00000020.*")):
        whole = path.read_bytes()
        for place in range(0, len(whole), 1 if path.suffix == ".json" else 17):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            said = []
            state = restored(newest(tmp_path, said.append), start())
            assert same(state, before if said else newer), (path, place)
            assert all("\n" not in line and line.startswith("checkpoint of round 20") for line in said)
            fell_back += len(said)
        path.write_bytes(whole)
    assert fell_back > 70  # the 64 digits of the checksum alone, and all of the arrays


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays, facts: arrays.write_bytes(arrays.read_bytes()[:-1]),
        lambda arrays, facts: arrays.write_bytes(b""),
        lambda arrays, facts: arrays.unlink(),
        lambda arrays, facts: facts.write_text(facts.read_text()[:20]),
        lambda arrays, facts: facts.write_text(""),
        lambda arrays, facts: facts.write_text("[]"),
        lambda arrays, facts: facts.write_text(json.dumps(json.loads(facts.read_text()) | {"round": 19})),
    ],
    ids=["a byte short", "empty", "no arrays", "facts cut", "facts empty", "facts of another kind", "another round"],
)
def test_a_damaged_newest_checkpoint_is_reported_in_one_line_and_the_previous_one_is_used(damage, tmp_path):
    before, _ = saved(tmp_path, 10, [3]), saved(tmp_path, 20, [1, 3])
    damage(tmp_path / "00000020.safetensors", tmp_path / "00000020.json")
    said = []
    assert same(restored(newest(tmp_path, said.append), start()), before)
    assert len(said) == 1
    assert said[0].startswith("checkpoint of round 20 cannot be used (")
    assert said[0].endswith("): resuming from the previous checkpoint")


def test_arrays_without_a_manifest_as_after_a_crash_are_not_a_checkpoint(tmp_path):
    before, _ = saved(tmp_path, 10, [3]), saved(tmp_path, 20, [1, 3])
    (tmp_path / "00000020.json").unlink()
    assert same(restored(newest(tmp_path, pytest.fail), start()), before)


def test_without_an_undamaged_checkpoint_the_run_starts_again_and_reports_it(tmp_path):
    saved(tmp_path, 10, [3])
    (tmp_path / "00000010.safetensors").write_bytes(b"")
    said = []
    assert newest(tmp_path, said.append) is None
    assert said[0].endswith("resuming from the start")


def test_a_checkpoint_newer_than_the_records_is_not_used(tmp_path):
    """Its rounds would be missing from metrics.jsonl."""
    saved(tmp_path, 10, [3]), saved(tmp_path, 20, [1, 3])
    said = []
    assert [found.round for found in newest_of_all([tmp_path], said.append, recorded=19)] == [10]
    assert said == [
        "checkpoint of round 20 cannot be used (the records end after 19 rounds): resuming from the previous checkpoint"
    ]
    assert [found.round for found in newest_of_all([tmp_path], pytest.fail, recorded=20)] == [20]


def test_runs_that_train_together_resume_from_a_round_that_all_have_saved(tmp_path):
    """After a crash between their saves, one run has a newer checkpoint than the others."""
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, rounds in ((one, 10), (other, 10), (one, 20)):
        saved(folder, rounds, [0])
    assert [found.round for found in newest_of_all([one, other], pytest.fail)] == [10, 10]
    assert newest_of_all([one, tmp_path / "new"], pytest.fail) == []


@pytest.mark.parametrize(
    "other, said",
    [
        (start(weights=5), r"'(server/params/w|memory/v)' is float32 \("),
        (start()._replace(memory=()), "only one of them has 'memory/count'"),
        (
            start()._replace(server=ServerState({"w": np.zeros((2, 4), np.float32)}, (), ())),
            "only one of them has 'server/",
        ),
        (start(clients=3), "it has a client 6, the task has 3 clients"),
    ],
    ids=["another size", "clients without memory", "another optimizer", "fewer clients"],
)
def test_a_checkpoint_of_another_method_or_task_is_refused(other, said, tmp_path):
    saved(tmp_path, 40, [1, 2, 6])
    with pytest.raises(ValueError, match=f"^the checkpoint of round 40 belongs to another method or task: .*{said}"):
        restored(newest(tmp_path, pytest.fail), other)


def test_the_size_of_a_checkpoint_depends_on_the_clients_that_took_part_and_not_on_the_federation(tmp_path):
    size = lambda folder: sum(path.stat().st_size for path in folder.iterdir())
    few, many, more = (tmp_path / name for name in ("few", "many", "more"))
    saved(few, 1, [2, 7, 9], clients=10)
    saved(many, 1, [2, 7, 9], clients=100_000)
    saved(more, 1, range(1000), clients=100_000)
    assert size(many) == size(few)
    row = 4 * 4 + 4 + 8  # four weights and a count in float32, the client's number
    assert size(more) - size(many) == pytest.approx(997 * row, abs=100)  # header digits


@pytest.mark.parametrize("count", [1, 511, 512, 513, 1500])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_gathered_on_the_device_equal_rows_indexed_on_the_host(count, axis):
    random = np.random.default_rng(0)
    memory = {"v": jnp.asarray(random.normal(size=(2000, 3) if axis == 0 else (4, 2000, 3)), jnp.float32)}
    clients = np.sort(random.choice(2000, count, replace=False))
    np.testing.assert_array_equal(rows_of(memory, clients, axis)["v"], np.take(np.asarray(memory["v"]), clients, axis))


def test_saving_does_not_recompile_for_any_number_of_clients_that_took_part():
    memory = jnp.zeros((3000, 5))
    rows_of(memory, np.arange(10))
    compiled = store._take_on_device._cache_size()
    for count in (11, 600, 2999):
        rows_of(memory, np.arange(count))
    assert store._take_on_device._cache_size() == compiled


def test_the_guide_prints_what_the_benchmark_measured():
    root = Path(__file__).parents[2]
    guide = (root / "docs" / "runs.md").read_text()
    for row in json.loads((root / "benchmarks" / "results" / "checkpoints.json").read_text())["rows"]:
        cells = f"| {row['rounds']} | {row['clients']:,} | {row['megabytes']} MB | {row['seconds']:.2f} s |"
        assert cells in guide

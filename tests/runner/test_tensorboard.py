"""TensorBoard event files have the same numbers as metrics.jsonl."""

import struct

import pytest
from run_folders import FEW, ROUNDS, Runs, quadratic

import fedtrue as ft
from fedtrue.runner.callbacks.tensorboard import Events
from fedtrue.runner.records import METRICS, read_lines
from fedtrue.runner.stop import Stopped

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2", reason="needs the extra `tensorboard`")
SESSION_START = 1


def events_of(folder):
    """Every event of the folder's files, oldest file first: a record is its length, a checksum, bytes, a checksum."""
    found = []
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            found.append(event_pb2.Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return found


def shown(folder):
    """{tag: {round: value}} as TensorBoard shows it: a session that starts at a round discards later events."""
    tags = {}
    for event in events_of(folder):
        if event.session_log.status == SESSION_START:
            for values in tags.values():
                for step in [step for step in values if step >= event.step]:
                    del values[step]
        for value in event.summary.value:
            tags.setdefault(value.tag, {})[event.step] = value.simple_value
    return tags


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def expected(lines):
    """Every number of every line except the round."""
    tags = {}
    for line in lines:
        for split, metrics in {"train": line, **line.get("evaluation", {})}.items():
            for name, value in metrics.items():
                if isinstance(value, int | float) and name != "round":
                    tags.setdefault(f"{split}/{name}", {})[line["round"]] = float32(value)
    return tags


@pytest.fixture(scope="module")
def runs():
    return Runs(quadratic(), ft.fedopt(ft.client.sgd(0.05), correction="none"), **FEW)


def test_events_and_lines_agree_also_after_a_stop_and_resume(runs, tmp_path):
    with pytest.raises(Stopped):
        runs.into(tmp_path, stop_after=5, tensorboard=True)
    assert shown(tmp_path / "tensorboard") == expected(read_lines(tmp_path / METRICS))  # no queue delays events
    runs.into(tmp_path, tensorboard=True)
    lines = read_lines(tmp_path / METRICS)
    assert len(lines) == ROUNDS
    assert shown(tmp_path / "tensorboard") == expected(lines)
    assert set(expected(lines)) >= {"train/loss", "train/steps", "train/bytes_up", "train/pseudo_gradient_norm"}


def test_events_after_the_checkpoint_are_discarded_and_evaluations_have_their_own_tags(tmp_path):
    line = lambda number, loss: {"round": number, "loss": loss, "evaluation": {"test": {"accuracy": 0.5}}}
    crashed = Events(tmp_path / "events", 0)
    crashed.write([line(number, 1.0) for number in range(6)])
    resumed = Events(tmp_path / "events", 4)  # in the same second: the previous file is not overwritten
    resumed.write([line(4, 2.0)])
    found = shown(tmp_path / "events")
    assert found["train/loss"] == {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 2.0}
    assert found["test/accuracy"][4] == 0.5


def test_without_the_package_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX.event_file_writer", None)
    with pytest.raises(ValueError, match=r"TensorBoard needs a package: pip install 'fedtrue\[tensorboard\]'"):
        Events(tmp_path, 0)

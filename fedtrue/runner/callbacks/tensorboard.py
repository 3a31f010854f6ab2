"""Writes the lines of metrics.jsonl as TensorBoard event files too."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtrue.runner.callbacks.interface import Round, Start
from fedtrue.runner.callbacks.scalars import logged_scalars, missing_package
from fedtrue.runner.records import Line


class TensorBoard:
    """Event files for TensorBoard: all numbers of a round as scalars, by its number in metrics.jsonl.

    A resumed run discards the events after its checkpoint. `ft.train(…, tensorboard=True)` and `--tensorboard` write
    the same files into the run folder.

    Args:
        folder: for the event files; `tensorboard --logdir` shows them.

    >>> import os, tempfile, fedtrue as ft
    >>> folder, method = tempfile.mkdtemp(), ft.fedopt(ft.client.sgd(0.01))
    >>> _ = ft.train(ft.tasks.quadratic(), method, rounds=2, callbacks=[ft.callbacks.TensorBoard(folder)])
    >>> len(os.listdir(folder))
    1
    """

    def __init__(self, folder: str | Path):
        _import_writer()
        self.folder = Path(folder)
        self._events: Events | None = None

    def on_start(self, start: Start) -> None:
        self._events = Events(self.folder, len(start.past))

    def on_round(self, info: Round) -> None:
        assert self._events is not None, "a run starts before its first round"
        self._events.write([dict(info.line)])

    def close(self) -> None:
        if self._events:
            self._events.close()


class Events:
    """Scalars under `train/…`, `validation/…`, `test/…`, by round; earlier events after `done` rounds are discarded.

    Unlike SummaryWriter, this writes without a thread: a thread does not report a full disk, and events in its queue
    are lost when the run is stopped.
    """

    def __init__(self, folder: Path, done: int):
        EventsWriter, Event, SessionLog, self._summary = _import_writer()
        self._event = Event
        folder.mkdir(parents=True, exist_ok=True)
        # file names contain the second; the suffix keeps files that begin at different rounds apart
        self._writer = EventsWriter(str(folder / "events"), f".{done}")
        restart = SessionLog(status=SessionLog.START)
        self._writer.write_event(Event(wall_time=time.time(), step=done, session_log=restart))

    def write(self, lines: Sequence[Line]) -> None:
        """Writes all numbers of these rounds."""
        for line in lines:
            values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in logged_scalars(line).items()]
            summary = self._summary(value=values)
            self._writer.write_event(self._event(wall_time=time.time(), step=line["round"], summary=summary))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _import_writer() -> tuple[Any, ...]:
    try:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary
    except ImportError:
        raise missing_package("TensorBoard", "tensorboard") from None
    return EventsWriter, Event, SessionLog, Summary

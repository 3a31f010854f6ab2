"""Writes the lines of metrics.jsonl as TensorBoard event files too."""

import time
from collections.abc import Sequence
from pathlib import Path

from fedtrue.runner.records import Line


class Events:
    """Scalars under `train/…`, `validation/…`, `test/…`, by round; earlier events after `done` rounds are discarded.

    Unlike SummaryWriter, this writes without a thread: a thread does not report a full disk, and events in its queue
    are lost when the run is stopped.
    """

    def __init__(self, folder: Path, done: int):
        try:
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.proto.summary_pb2 import Summary
        except ImportError:
            raise ValueError("--tensorboard needs a package: pip install 'fedtrue[tensorboard]'") from None
        self._event, self._summary = Event, Summary
        folder.mkdir(exist_ok=True)
        # file names contain the second; the suffix keeps files that begin at different rounds apart
        self._writer = EventsWriter(str(folder / "events"), f".{done}")
        restart = SessionLog(status=SessionLog.START)
        self._writer.write_event(Event(wall_time=time.time(), step=done, session_log=restart))

    def write(self, lines: Sequence[Line]) -> None:
        """Writes all numbers of these rounds."""
        for line in lines:
            values = [
                self._summary.Value(tag=f"{split}/{name}", simple_value=value)
                for split, metrics in {"train": line, **line.get("evaluation", {})}.items()
                for name, value in metrics.items()
                if isinstance(value, int | float) and name != "round"
            ]
            summary = self._summary(value=values)
            self._writer.write_event(self._event(wall_time=time.time(), step=line["round"], summary=summary))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

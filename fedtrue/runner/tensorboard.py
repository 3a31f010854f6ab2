"""The same lines as TensorBoard event files, for those who look at everything there."""

from collections.abc import Sequence
from pathlib import Path

from fedtrue.runner.records import Line


class Events:
    """Scalars under `train/…`, `validation/…`, `test/…`, by round; events after `done` rounds are taken back."""

    def __init__(self, folder: Path, done: int):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ValueError("--tensorboard needs a package: pip install 'fedtrue[tensorboard]'") from None
        self._writer = SummaryWriter(str(folder), purge_step=done)

    def write(self, lines: Sequence[Line]) -> None:
        """All numbers of these rounds."""
        for line in lines:
            for split, metrics in {"train": line, **line.get("evaluation", {})}.items():
                for name, value in metrics.items():
                    if isinstance(value, int | float) and name != "round":
                        self._writer.add_scalar(f"{split}/{name}", value, line["round"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

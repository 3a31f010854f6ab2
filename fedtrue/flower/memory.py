"""What a client keeps between rounds, at its node: in Flower's `context.state`, and on its disk if it has a folder.

`context.state` ends with the Flower run. A run that is resumed is a new one for Flower, so methods whose clients keep
something need the folder to be resumed.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from flwr.app import Context

from fedtrue.files import write_atomically
from fedtrue.flower.wire import from_record, to_record
from fedtrue.models.named_leaves import with_leaves
from fedtrue.runner.checkpoint import arrays_from, by_path

ROUNDS_KEPT = 2  # files per phase: a server resumes at most one round behind its clients


class NodeMemory:
    """The memory of one client in one phase."""

    def __init__(self, context: Context, folder: Path | None, run: str, client: int, phase: int):
        self._state, self._key = context.state, f"fedtrue.memory.{run}.{phase}"
        self._folder = None if folder is None else folder / f"run-{run}" / f"client-{client}" / f"phase-{phase}"

    def load(self, like: Any, round_index: int) -> Any:
        """What the client kept before this round; None if nothing is found."""
        if self._folder is not None:
            before = [path for path in self._files() if int(path.stem) < round_index]
            if not before:
                return None
            return with_leaves(like, arrays_from(before[-1].read_bytes()), str(before[-1]))
        record = self._state.array_records.get(self._key)
        return None if record is None else from_record(record, like, "the node's memory")

    def save(self, memory: Any, round_index: int) -> None:
        """Keeps what the client has after this round."""
        memory = jax.tree.map(np.asarray, memory)
        if self._folder is None:
            self._state[self._key] = to_record(memory)
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._folder / f"{round_index:08d}.safetensors", safetensors.numpy.save(by_path(memory)))
        later = [path for path in self._files() if int(path.stem) > round_index]  # of a run that was resumed earlier
        for path in [*later, *self._files()[: -ROUNDS_KEPT - len(later)]]:
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.safetensors")) if self._folder is not None else []

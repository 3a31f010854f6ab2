"""Checkpoints: the state of a run after so many rounds, in two files of which the second says that the first is good.

    checkpoints/00000040.safetensors   the arrays, by their path in the state
    checkpoints/00000040.json          {"round": 40, "sha256": …, "clients": …}, written last

Loading one never runs code. The last two are kept. Of a client memory (`inherit`) only the rows of clients that have
taken part are written, so a checkpoint grows with those and not with the federation.
"""

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors.numpy

from fedtrue.engine.program import State
from fedtrue.files import write_atomically

KEPT = 2


class Checkpoint(NamedTuple):
    """As it lies on the disk."""

    round: int  # rounds done
    arrays: dict[str, np.ndarray]
    clients: np.ndarray  # whose memory it holds


def by_path(tree: Any) -> dict[str, np.ndarray]:
    """{path: array}; a tree that is a single array is called `params`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/") or "params": np.asarray(leaf) for path, leaf in leaves
    }


def save(folder: Path, done: int, state: State, clients: np.ndarray) -> None:
    """Writes the state after `done` rounds; `clients` are those whose memory may have changed since the start."""
    memory = jax.tree.map(lambda rows: np.asarray(rows)[clients], state.memory)
    data = safetensors.numpy.save(by_path(state._replace(memory=memory)))
    clients = clients if jax.tree.leaves(memory) else clients[:0]
    facts = {"round": done, "sha256": hashlib.sha256(data).hexdigest(), "clients": clients.tolist()}
    folder.mkdir(exist_ok=True)
    write_atomically(_arrays(folder, done), data)
    write_atomically(_facts(folder, done), json.dumps(facts).encode())
    for old in rounds_saved(folder)[:-KEPT]:
        _facts(folder, old).unlink()
    _sweep(folder)


def newest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole; of each newer one that is not, `say` hears one line."""
    for done in reversed(rounds_saved(folder)):
        try:
            return _load(folder, done)
        except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
            say(f"checkpoint of round {done} is damaged ({error}): going back to the one before")
    return None


def restored(checkpoint: Checkpoint, start: State) -> State:
    """`start`, a run's state before round 0, brought to where the checkpoint was taken."""
    arrays = checkpoint.arrays

    def leaf(path: Any, first: Any) -> np.ndarray:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name not in arrays:
            raise ValueError(f"the checkpoint has no {name!r}: it belongs to another method or task")
        if not name.startswith("memory"):
            return arrays[name]
        everyone = np.array(first)
        everyone[checkpoint.clients] = arrays[name]
        return everyone

    return jax.tree_util.tree_map_with_path(leaf, start)


def rounds_saved(folder: Path) -> list[int]:
    """After which rounds there are checkpoints, oldest first."""
    names = (re.fullmatch(r"(\d+)\.json", path.name) for path in folder.glob("*.json"))
    return sorted(int(name[1]) for name in names if name)


def _load(folder: Path, done: int) -> Checkpoint:
    facts = json.loads(_facts(folder, done).read_text())
    data = _arrays(folder, done).read_bytes()
    if hashlib.sha256(data).hexdigest() != facts["sha256"]:
        raise ValueError("its checksum is wrong")
    return Checkpoint(facts["round"], safetensors.numpy.load(data), np.asarray(facts["clients"], np.int64))


def _arrays(folder: Path, done: int) -> Path:
    return folder / f"{done:08d}.safetensors"


def _facts(folder: Path, done: int) -> Path:
    return folder / f"{done:08d}.json"


def _sweep(folder: Path) -> None:
    """Removes arrays without facts: of old checkpoints, and of one that was being written when the process died."""
    kept = {f"{done:08d}" for done in rounds_saved(folder)}
    for path in folder.iterdir():
        if path.name.split(".")[0] not in kept:
            with suppress(OSError):
                path.unlink()

"""Checkpoints: the state of a run after so many rounds, in two files of which the second says that the first is good.

    checkpoints/00000040.safetensors   the arrays, by their path in the state, and whose memory they hold
    checkpoints/00000040.json          {"round": 40, "sha256": …}, written last

Loading one never runs code. The last two are kept. Of the clients' memory only the rows of clients that have
taken part are written, so a checkpoint grows with those and not with the federation.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors.numpy

from fedtrue.engine.round import State
from fedtrue.files import write_atomically

KEPT = 2
CLIENTS = "clients"  # the array of those whose memory is there; all others are below `server` or `memory`


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
    """Writes the state after `done` rounds; its memory has a row for each of `clients`, who have taken part."""
    whose = clients if jax.tree.leaves(state.memory) else clients[:0]
    data = safetensors.numpy.save({CLIENTS: whose, **by_path(state)})
    facts = {"round": done, "sha256": hashlib.sha256(data).hexdigest()}
    folder.mkdir(exist_ok=True)
    write_atomically(_arrays(folder, done), data)
    write_atomically(_facts(folder, done), json.dumps(facts).encode())
    for old in rounds_saved(folder)[:-KEPT]:
        _facts(folder, old).unlink()
    _sweep(folder)


def newest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest that is whole."""
    return next(iter(newest_of_all([folder], say)), None)


def newest_of_all(folders: Sequence[Path], say: Callable[[str], None], recorded: float = math.inf) -> list[Checkpoint]:
    """One per folder, of the newest round of which all have a whole one; [] if there is none.

    Of each newer round that cannot be used, `say` hears one line. `recorded`: how many rounds the records have.
    """
    saved = set[int]().union(*map(rounds_saved, folders)).intersection(*map(rounds_saved, folders))
    for done in sorted(saved, reverse=True):
        try:
            if done > recorded:
                raise ValueError(f"the records end after {recorded} rounds")
            return [_load(folder, done) for folder in folders]
        except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
            back = "to the one before" if done > min(saved) else "to the start"
            say(f"checkpoint of round {done} cannot be used ({error}): going back {back}")
    return []


def restored(checkpoint: Checkpoint, like: State) -> State:
    """The state where the checkpoint was taken; `like` has its shapes, with the memory of the checkpoint's clients."""
    arrays = checkpoint.arrays
    elsewhere = f"the checkpoint of round {checkpoint.round} belongs to another method or task"
    if unknown := set(arrays) ^ set(by_path(like)):
        raise ValueError(f"{elsewhere}: one has {min(unknown)!r}, the other has not")

    def leaf(path: Any, wanted: Any) -> np.ndarray:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        found, wanted = arrays[name], np.asarray(wanted)
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            raise ValueError(f"{elsewhere}: {name!r} is {found.dtype} {found.shape}, not {wanted.dtype} {wanted.shape}")
        return found

    return jax.tree_util.tree_map_with_path(leaf, like)


def check_clients(checkpoint: Checkpoint, clients: int) -> None:
    """Refuses the checkpoint of a federation with more clients."""
    if len(checkpoint.clients) and checkpoint.clients.max() >= clients:
        raise ValueError(
            f"the checkpoint of round {checkpoint.round} belongs to another method or task: "
            f"it has a client {checkpoint.clients.max()}, the task {clients} clients"
        )


def rounds_saved(folder: Path) -> list[int]:
    """After which rounds there are checkpoints, oldest first."""
    names = (re.fullmatch(r"(\d+)\.json", path.name) for path in folder.glob("*.json"))
    return sorted(int(name[1]) for name in names if name)


def _load(folder: Path, done: int) -> Checkpoint:
    facts = json.loads(_facts(folder, done).read_text())
    data = _arrays(folder, done).read_bytes()
    if hashlib.sha256(data).hexdigest() != facts["sha256"]:
        raise ValueError("its checksum is wrong")
    arrays = safetensors.numpy.load(data)
    clients = arrays.pop(CLIENTS)
    if facts["round"] != done:
        raise ValueError(f"it says that it is of round {facts['round']}")
    return Checkpoint(done, arrays, clients)


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

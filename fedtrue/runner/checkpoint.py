"""Checkpoints: the state of a run after some round, in two files; the second proves that the first is complete.

    checkpoints/00000040.safetensors   the arrays, by their path in the state, and the clients whose memory they hold
    checkpoints/00000040.json          {"round": 40, "sha256": …, "settings": their hash}, written last

Loading a checkpoint never runs code. The last two are kept. Only the memory of clients that have taken part is written,
so the size of a checkpoint depends on their number and not on the size of the federation.
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
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from fedtrue.engine.round import State
from fedtrue.files import write_atomically
from fedtrue.models.named_leaves import leaf_name, named_leaves

CHECKPOINTS_KEPT = 2
CLIENTS = "clients"  # name of the array of clients with memory; all other names begin with `server` or `memory`
DTYPES = {  # by safetensors' names
    **{f"F{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    **{f"I{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    "BF16": np.dtype(jnp.bfloat16),
    "BOOL": np.dtype(bool),
}


class Checkpoint(NamedTuple):
    """The contents of a checkpoint."""

    round: int  # number of rounds trained
    arrays: dict[str, np.ndarray]
    clients: np.ndarray  # those whose memory it contains
    settings: str | None = None  # hash of the run's settings; None: it has none, as those of older versions


def by_path(tree: Any) -> dict[str, np.ndarray]:
    """{path: array}; the path of a tree that is a single array is `params`."""
    return {name: np.asarray(leaf) for name, leaf in named_leaves(tree).items()}


def arrays_from(data: bytes) -> dict[str, np.ndarray]:
    """The contents of a safetensors file; its own function for NumPy does not read bfloat16."""
    return {
        name: np.frombuffer(view["data"], DTYPES[view["dtype"]]).reshape(view["shape"])
        for name, view in safetensors.deserialize(data)
    }


def save(folder: Path, done: int, state: State, clients: np.ndarray, settings: str | None = None) -> None:
    """Writes the state after `done` rounds; its memory has one row per client in `clients`, who have taken part.

    `settings`: a hash of those that may not change until the run is resumed.
    """
    with_memory = clients if jax.tree.leaves(state.memory) else clients[:0]
    data = safetensors.numpy.save({CLIENTS: with_memory, **by_path(state)})
    manifest = {"round": done, "sha256": hashlib.sha256(data).hexdigest(), "settings": settings}
    folder.mkdir(exist_ok=True)
    write_atomically(_arrays_file(folder, done), data)
    write_atomically(_manifest_file(folder, done), json.dumps(manifest).encode())
    for old in rounds_saved(folder)[:-CHECKPOINTS_KEPT]:
        _manifest_file(folder, old).unlink()
    _delete_incomplete(folder)


def newest(folder: Path, log: Callable[[str], None]) -> Checkpoint | None:
    """The newest undamaged checkpoint."""
    return next(iter(newest_of_all([folder], log)), None)


def newest_of_all(folders: Sequence[Path], log: Callable[[str], None], recorded: float = math.inf) -> list[Checkpoint]:
    """One checkpoint per folder, of the newest round for which all folders have an undamaged one; [] if there is none.

    `log` gets one line per newer round that cannot be used. `recorded`: how many rounds the records have.
    """
    saved = set[int]().union(*map(rounds_saved, folders)).intersection(*map(rounds_saved, folders))
    for done in sorted(saved, reverse=True):
        try:
            if done > recorded:
                raise ValueError(f"the records end after {recorded} rounds")
            return [_load(folder, done) for folder in folders]
        except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
            fallback = "the previous checkpoint" if done > min(saved) else "the start"
            log(f"checkpoint of round {done} cannot be used ({error}): resuming from {fallback}")
    return []


def restored(checkpoint: Checkpoint, like: State) -> State:
    """The state in a checkpoint; `like` has the same shapes, with memory for the checkpoint's clients."""
    arrays = checkpoint.arrays
    mismatch = f"the checkpoint of round {checkpoint.round} belongs to another method or task"
    if unknown := set(arrays) ^ set(by_path(like)):
        raise ValueError(f"{mismatch}: only one of them has {min(unknown)!r}")

    def leaf(path: Any, expected: Any) -> np.ndarray:
        name = leaf_name(path)
        array, expected = arrays[name], np.asarray(expected)
        if (array.shape, array.dtype) != (expected.shape, expected.dtype):
            raise ValueError(
                f"{mismatch}: {name!r} is {array.dtype} {array.shape}, not {expected.dtype} {expected.shape}"
            )
        return array

    return jax.tree_util.tree_map_with_path(leaf, like)


def check_clients(checkpoint: Checkpoint, clients: int) -> None:
    """Refuses the checkpoint of a federation with more clients."""
    if len(checkpoint.clients) and checkpoint.clients.max() >= clients:
        raise ValueError(
            f"the checkpoint of round {checkpoint.round} belongs to another method or task: "
            f"it has a client {checkpoint.clients.max()}, the task has {clients} clients"
        )


def rounds_saved(folder: Path) -> list[int]:
    """The rounds after which checkpoints were saved, oldest first."""
    names = (re.fullmatch(r"(\d+)\.json", path.name) for path in folder.glob("*.json"))
    return sorted(int(name[1]) for name in names if name)


def _load(folder: Path, done: int) -> Checkpoint:
    manifest = json.loads(_manifest_file(folder, done).read_text())
    data = _arrays_file(folder, done).read_bytes()
    if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
        raise ValueError("its checksum is wrong")
    arrays = arrays_from(data)
    clients = arrays.pop(CLIENTS)
    if manifest["round"] != done:
        raise ValueError(f"its manifest is of round {manifest['round']}")
    return Checkpoint(done, arrays, clients, manifest.get("settings"))


def _arrays_file(folder: Path, done: int) -> Path:
    return folder / f"{done:08d}.safetensors"


def _manifest_file(folder: Path, done: int) -> Path:
    return folder / f"{done:08d}.json"


def _delete_incomplete(folder: Path) -> None:
    """Deletes arrays without a manifest: of old checkpoints, and of a write that was interrupted."""
    complete = {f"{done:08d}" for done in rounds_saved(folder)}
    for path in folder.iterdir():
        if path.name.split(".")[0] not in complete:
            with suppress(OSError):
                path.unlink()

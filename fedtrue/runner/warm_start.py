"""Weights to start from: given in Python, in a file, or those of another run."""

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from fedtrue.names import suggestion
from fedtrue.precision import float64
from fedtrue.runner import checkpoint
from fedtrue.runner.records import MODEL
from fedtrue.tasks.task import Task
from fedtrue.types import Params

GIVEN_IN_PYTHON = "weights "  # how the setting of weights without a file begins
SERVER_PARAMS = "server/params"  # the weights in a checkpoint


def starting_weights(start: Params | str | Path, task: Task) -> Params:
    """The weights, in the structure and precision of the task's own; others are refused."""
    arrays = _read(Path(start)) if isinstance(start, str | Path) else checkpoint.by_path(start)
    where = str(start) if isinstance(start, str | Path) else "start"
    with float64(task.float64):
        own = jax.eval_shape(task.init, jax.random.key(0))
    paths, structure = jax.tree_util.tree_flatten_with_path(own)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") or "params" for path, _ in paths]
    if unknown := [name for name in arrays if name not in names]:
        near = suggestion(unknown[0], names)
        raise ValueError(f"{where} has weights {unknown[0]!r}, which task {task.name!r} lacks{near}: give others")
    leaves = [_leaf(where, name, arrays, leaf) for name, (_, leaf) in zip(names, paths)]
    return jax.tree_util.tree_unflatten(structure, leaves)


def _leaf(where: str, name: str, arrays: dict[str, np.ndarray], own: Any) -> np.ndarray:
    if name not in arrays:
        raise ValueError(f"{where} has no weights {name!r}: it has {', '.join(arrays)}")
    if arrays[name].shape != own.shape:
        raise ValueError(f"{where}: {name!r} has shape {arrays[name].shape}, the task's has {own.shape}")
    return np.asarray(arrays[name], own.dtype)


def _read(path: Path) -> dict[str, np.ndarray]:
    """The weights in a .safetensors file or a run folder, by name."""
    file = path / MODEL if path.is_dir() else path
    if path.is_dir() and not file.exists():
        saved = checkpoint.newest(path / "checkpoints", lambda line: None)
        if saved is None:
            raise ValueError(f"{path} has neither {MODEL} nor a checkpoint: give a run folder or a .safetensors file")
        return server_params(saved.arrays)
    try:
        return dict(safetensors.numpy.load_file(file))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist: give a run folder or a .safetensors file") from None
    except safetensors.SafetensorError as error:
        raise ValueError(f"{file} is not a safetensors file: {error}") from None


def server_params(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The server's weights in a checkpoint, under the names that they have in a file of weights."""
    if SERVER_PARAMS in arrays:
        return {"params": arrays[SERVER_PARAMS]}
    prefix = f"{SERVER_PARAMS}/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def start_setting(start: Params | str | Path | None) -> str | None:
    """As recorded in config.toml: the absolute path, or the fingerprint of weights that were given in Python."""
    if start is None:
        return None
    if isinstance(start, str | Path):
        return str(Path(start).expanduser().absolute())
    return GIVEN_IN_PYTHON + weights_fingerprint(start)


def weights_fingerprint(params: Params) -> str:
    """The first 16 digits of a sha256 over all weights and their names."""
    digest = hashlib.sha256()
    for name, array in checkpoint.by_path(params).items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]

"""Weights into a model, and out of one: safetensors files, whose loading never runs code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from fedtrue.files import write_atomically
from fedtrue.models.adapters import weights_of, with_weights
from fedtrue.runner.checkpoint import arrays_from, by_path
from fedtrue.runner.journal import Result
from fedtrue.runner.load import nested
from fedtrue.runner.records import MODEL


def load_weights(source: str | Path | Result, like: Any = None) -> Any:
    """Trained weights, in your model.

    Args:
        source: a run folder, a `.safetensors` file, or the result of `ft.train`.
        like: a model or weights of the same names and shapes: an nnx or equinox module, the weights of a linen module
            (or what its `init` returns), of a haiku transform, or any tree of arrays. It is not changed.

    Returns:
        What `like` is, with the trained weights in it: a module is ready to call. Without `like`, a nested dict.

    >>> import tempfile, fedtrue as ft
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> ft.save_weights(path, {"Dense_0": {"kernel": np.ones((2, 3)), "bias": np.zeros(3)}})
    >>> ft.load_weights(path, like={"Dense_0": {"kernel": np.zeros((2, 3)), "bias": np.zeros(3)}})["Dense_0"]["bias"]
    array([0., 0., 0.])
    """
    arrays, name = _arrays(source)
    if like is None:
        return nested(arrays)
    in_variables = isinstance(like, Mapping) and set(like) == {"params"} and set(arrays) != {"params"}
    if in_variables:  # what linen's `init` returns and its `apply` takes
        return {"params": with_weights(like["params"], arrays, name)}
    return with_weights(like, arrays, name)


def save_weights(path: str | Path, model: Any) -> None:
    """Write weights to a safetensors file; arrays are called by their path in the tree, as in `Dense_0/kernel`.

    Args:
        path: of the file, which is replaced if it exists.
        model: an nnx or equinox module, or any tree of arrays.

    Returns:
        Nothing.

    >>> import tempfile, fedtrue as ft
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> ft.save_weights(path, {"w": np.ones(2)})
    >>> ft.load_weights(path)
    {'w': array([1., 1.])}
    """
    write_atomically(Path(path), safetensors.numpy.save(by_path(weights_of(model))))


def _arrays(source: str | Path | Result) -> tuple[dict[str, np.ndarray], str]:
    """The arrays by name, and what to call their source in errors."""
    if isinstance(source, Result):
        return by_path(source.weights), "the result"
    path = Path(source)
    file = path / MODEL if path.is_dir() else path
    if not file.exists():
        cure = (
            "a run folder has it once its run has ended"
            if path.is_dir()
            else "give a run folder or a .safetensors file"
        )
        raise ValueError(f"{file} does not exist: {cure}")
    try:
        return arrays_from(file.read_bytes()), str(file)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{file} is not a safetensors file: {error}") from None

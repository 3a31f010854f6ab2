"""What travels, as Flower's records.

server → client   arrays: the weights    shared: what the method shares    config: round, phase, seed, method …
client → server   contribution.NAME: w_i times what is sent    metrics: [total, count]    reply: w_i, steps, client
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, Message
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fedtrue.models.named_leaves import first_missing, leaf_name, named_leaves
from fedtrue.types import PyTree

ARRAYS, SHARED, CONFIG = "arrays", "shared", "config"  # records of a message to a client
METRICS, REPLY = "metrics", "reply"  # records of a message to the server
CONTRIBUTION = "contribution."  # before the names of what is summed
WEIGHT = "weight."  # before the names of the weightings, in REPLY
ERROR = "error"  # in REPLY: why the client sends nothing else


def arrays(model: Any) -> ArrayRecord:
    """The weights of a model as Flower's record: the `initial_arrays` of a strategy.

    Args:
        model: a `torch.nn.Module`, whose parameters are taken and not its buffers, or any tree of arrays.

    Returns:
        A record of arrays, called by their path in the tree or by their name in the module.

    >>> import fedtrue as ft
    >>> list(ft.flower.arrays({"Dense_0": {"bias": np.zeros(3, np.float32)}}))
    ['Dense_0/bias']
    """
    if hasattr(model, "named_parameters"):
        return ArrayRecord({name: Array(weight.detach().cpu().numpy()) for name, weight in model.named_parameters()})
    return to_record(model)


def to_record(tree: PyTree) -> ArrayRecord:
    """The leaves of a tree by their names."""
    return ArrayRecord({name: Array(np.asarray(leaf)) for name, leaf in named_leaves(tree).items()})


def from_record(record: Mapping[str, Array], like: PyTree, source: str) -> PyTree:
    """The inverse; refuses what has not the names, shapes and types of `like`. `source` says whose record it is."""
    expected = named_leaves(like)
    if (missing := first_missing(expected, record)) is not None:
        raise ValueError(f"{source} has no array {missing!r}")
    if (extra := first_missing(record, expected)) is not None:
        raise ValueError(f"{source} has an array {extra!r}, which is unknown here")
    leaves = {name: _checked(record[name], leaf, f"{source}: {name!r}") for name, leaf in expected.items()}
    return jax.tree_util.tree_map_with_path(lambda path, _: leaves[leaf_name(path)], like)


def _checked(array: Array, like: Any, source: str) -> np.ndarray:
    try:
        value = array.numpy()
    except Exception as error:  # whatever was sent in place of an array
        raise ValueError(f"{source} cannot be read: {' '.join(str(error).split())}") from None
    if value.shape != like.shape:
        raise ValueError(f"{source} has shape {value.shape}, not {like.shape}")
    if value.dtype != like.dtype:
        raise ValueError(f"{source} is {value.dtype}, not {np.dtype(like.dtype)}")
    return value


def weights_from(record: ArrayRecord) -> dict[str, np.ndarray]:
    """The arrays of a record by name: the weights of a model that only its clients know."""
    return {name: array.numpy() for name, array in record.items()}


def wire_bytes(message: Message) -> int:
    """The bytes of a message as Flower serialises it; without the framing of HTTP and TLS."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())

"""The leaves of a tree by name: `Dense_0/kernel`. These are the names in safetensors files, errors and patterns."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax

from fedtrue.names import suggestion
from fedtrue.types import PyTree

SINGLE_ARRAY = "params"  # the name of a tree that is one array


def leaf_name(path: Any) -> str:
    """The name of a leaf, from its path in the tree."""
    return jax.tree_util.keystr(path, simple=True, separator="/") or SINGLE_ARRAY


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """{name: leaf}.

    >>> named_leaves({"Dense_0": {"bias": 1.0, "kernel": 2.0}})
    {'Dense_0/bias': 1.0, 'Dense_0/kernel': 2.0}
    """
    return {leaf_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def with_leaves(like: PyTree, leaves: Mapping[str, Any], source: str) -> PyTree:
    """The tree `like` with its leaves replaced by those of the same name; `source` says in errors where they are from.

    >>> with_leaves({"w": jax.numpy.zeros(2)}, {"w": jax.numpy.ones(2)}, "a file")
    {'w': Array([1., 1.], dtype=float32)}
    """
    expected = named_leaves(like)
    if missing := first_missing(expected, leaves):
        raise ValueError(f"{source} has no weights {missing!r}{suggestion(missing, leaves)}: is it of another model?")
    if extra := first_missing(leaves, expected):
        raise ValueError(f"{source} has weights {extra!r}, which the model does not have: is it of another model?")
    for name, leaf in expected.items():
        if leaves[name].shape != leaf.shape:
            raise ValueError(
                f"{source} has {name!r} of shape {leaves[name].shape}, the model {leaf.shape}: is it of another model?"
            )
    return jax.tree_util.tree_map_with_path(lambda path, _: leaves[leaf_name(path)], like)


def first_missing(wanted: Iterable[str], present: Mapping[str, Any]) -> str | None:
    """The first of the wanted names that is not present."""
    return next((name for name in wanted if name not in present), None)

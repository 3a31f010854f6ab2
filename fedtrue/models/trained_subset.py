"""Which leaves of a model are trained. All others are held once: not per lane, not per client, not in messages.

The trained part is the model's tree with None in place of the other leaves. It is what clients train and send; a
`TrainedSubset` adds the other leaves when the model is applied, and when its weights are written to a file.
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp

from fedtrue.models.named_leaves import leaf_name, named_leaves, with_leaves
from fedtrue.names import suggestion
from fedtrue.types import Array, Params, PyTree

Patterns = str | Sequence[str]  # names of leaves or of layers, or globs: "Dense_1", "*/bias"
Trainable = Callable[[str], bool] | Patterns


class TrainedSubset(NamedTuple):
    """The trained part of a model's weights, and how the others are added to it."""

    init: Callable[[Array], Params]  # key → the trained part
    others: PyTree  # the other leaves; None if there are none
    complete: Callable[..., PyTree]  # (the trained part, or weights that are complete already, others=…) → all weights


def trained_subset(init: Callable[[Array], PyTree], trainable: Trainable | None = None) -> TrainedSubset:
    """The floating-point leaves whose names `trainable` selects; None: all of them."""
    shapes = weight_shapes(init)
    chosen = selected(shapes, trainable)
    if not chosen:
        raise ValueError("no weights would be trained: trainable must select at least one floating-point array")
    return subset_of(init, shapes, chosen)


def weight_shapes(init: Callable[[Array], PyTree]) -> PyTree:
    """The shapes of a model's weights; nothing is computed. BatchNorm's statistics and random keys are refused."""
    shapes = jax.eval_shape(init, jax.random.key(0))
    for name, leaf in named_leaves(shapes).items():
        if "batch_stats" in name.split("/"):
            refuse_state(f"flax collection 'batch_stats' ({name!r})")
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise ValueError(f"the weights {name!r} are a random key, which no file can hold: keep it elsewhere")
    return shapes


def subset_of(init: Callable[[Array], PyTree], shapes: PyTree, chosen: set[str]) -> TrainedSubset:
    """The leaves of these names. All others are those of `init(jax.random.key(0))`, whatever the seed of the run."""
    for name, leaf in named_leaves(shapes).items():
        if name in chosen and jnp.finfo(leaf.dtype).bits < 32:
            raise ValueError(
                f"the weights {name!r} are {leaf.dtype.name}, too coarse for averages of squares (1 − 0.001 is 1): "
                'keep them in float32, and give precision="bfloat16" to compute in it'
            )

    def part(tree: PyTree, trained: bool) -> PyTree:
        keep = lambda path, leaf: leaf if (leaf_name(path) in chosen) is trained else None
        return jax.tree_util.tree_map_with_path(keep, tree)

    if len(chosen) == len(jax.tree.leaves(shapes)):
        return TrainedSubset(init, None, lambda params, others=None: _complete_weights(params, shapes))
    structure: Any = jax.tree.structure(part(shapes, True))
    own_others = jax.tree.map(jnp.asarray, part(init(jax.random.key(0)), False))

    def complete(params: Params, others: PyTree = None) -> PyTree:
        trained_only = structure == jax.tree.structure(params)
        if not trained_only:
            return _complete_weights(params, shapes)
        return merged(params, own_others if others is None else others)

    return TrainedSubset(lambda key: part(init(key), True), own_others, complete)


def _complete_weights(params: Params, shapes: PyTree) -> PyTree:
    """Weights that are complete already, such as those of `ft.load_run`, which have the same names in nested dicts."""
    structure: Any = jax.tree.structure(shapes)
    return params if structure == jax.tree.structure(params) else with_leaves(shapes, named_leaves(params), "params")


def merged(first: PyTree, second: PyTree) -> PyTree:
    """Two parts of a tree, each with None where the other has a leaf."""
    return jax.tree.map(lambda a, b: b if a is None else a, first, second, is_leaf=lambda leaf: leaf is None)


def selected(shapes: PyTree, trainable: Trainable | None) -> set[str]:
    """The names of the floating-point leaves that `trainable` selects."""
    leaves = named_leaves(shapes)
    chosen = names_matching(list(leaves), trainable) if trainable is not None else set(leaves)
    return {name for name in chosen if jnp.issubdtype(leaves[name].dtype, jnp.floating)}


def names_matching(names: Sequence[str], trainable: Trainable) -> set[str]:
    """By a function of the name, or by patterns: a leaf, a layer (all leaves below it) or a glob.

    >>> sorted(names_matching(["Conv_0/kernel", "Dense_0/bias", "Dense_0/kernel"], ["Dense_0"]))
    ['Dense_0/bias', 'Dense_0/kernel']
    """
    if callable(trainable):
        return {name for name in names if trainable(name)}
    patterns = [trainable] if isinstance(trainable, str) else list(trainable)
    matches = lambda name, pattern: fnmatchcase(name, pattern) or name.startswith(pattern + "/")
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            some = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
            raise ValueError(f"no weights are called {pattern!r}{suggestion(pattern, names)}; there are: {some}")
    return {name for name in names if any(matches(name, pattern) for pattern in patterns)}


class ModelStateError(ValueError):
    """A model keeps state between batches."""


def refuse_state(what: str) -> NoReturn:
    """Names the state, and the cure."""
    raise ModelStateError(
        f"the model keeps state between batches, {what}: clients train and send weights only, so the state would be "
        "wrong without a warning; use GroupNorm or LayerNorm in place of BatchNorm"
    )

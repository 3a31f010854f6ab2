"""Losses and metrics of a model's outputs and the targets: by name, or a user's functions.

All of them give values per example (n,) or per position of an example (n, time). `averaged` turns those into a mean
and its sums, without padding and without labels that are to be ignored.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.models.calls import first_line, with_key
from fedtrue.models.losses import binary_cross_entropy, token_cross_entropy
from fedtrue.models.model import accumulation_dtype
from fedtrue.names import look_up
from fedtrue.tasks.metric import FRACTION_METRIC, Metric
from fedtrue.types import Array, PyTree

Values = Callable[[Any, Any, Array | None], Array]  # (outputs, targets, key) → (n,) or (n, …)


class Shapes(NamedTuple):
    """A traced batch: what the model returns for it, and the targets; and how their column is called."""

    outputs: Any
    targets: Any
    column: str

    @property
    def examples(self) -> int:
        return jax.tree.leaves(self.targets)[0].shape[0]

    def text(self, shape: Sequence[int]) -> str:
        """(97, 10) as "(batch, 10)"."""
        sizes = ["batch" if size == self.examples and axis == 0 else str(size) for axis, size in enumerate(shape)]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def averaged(values: Array, mask: Array, counted: Array | None = None) -> tuple[Array, tuple[Array, Array]]:
    """The mean over examples and positions, and the (total, count) it is computed from.

    `mask` (n,) is 0 on padding; `counted` is False at positions that do not count.
    """
    values = values.astype(jnp.result_type(float))
    weights = jnp.broadcast_to(mask.reshape(-1, *[1] * (values.ndim - 1)), values.shape)
    if counted is not None and counted.shape == values.shape:
        weights = weights * counted
    total, count = jnp.sum(jnp.where(weights > 0, values, 0) * weights), jnp.sum(weights)
    return total / jnp.maximum(count, 1), (total, count)


# --- losses -----------------------------------------------------------------------------------------------------------


class NamedLoss(NamedTuple):
    """`check(shapes)` raises a ValueError when outputs and targets do not fit."""

    values: Values
    check: Callable[[Shapes], None]


def classes_of(shapes: Shapes) -> int | None:
    """The number of classes, if the targets are labels: integers, and the outputs have one more axis. Else None."""
    outputs, targets = shapes.outputs, shapes.targets
    if not (hasattr(outputs, "shape") and hasattr(targets, "shape")) or _is_floating(targets):
        return None
    return outputs.shape[-1] if outputs.shape[:-1] == targets.shape else None


def _cross_entropy(outputs: Array, targets: Array, key: Array | None = None) -> Array:
    return token_cross_entropy(_accurate(outputs), targets.astype(jnp.int32))


def _check_labels(shapes: Shapes) -> None:
    outputs, targets, column = _two_arrays(shapes)
    classes = classes_of(shapes)
    if classes == 1:
        raise ValueError(
            "the model has 1 output: cross_entropy needs one per class; or use loss='binary_cross_entropy'"
        )
    if classes is not None:
        return
    if outputs.shape == targets.shape:
        cure = "for one target per output use loss='binary_cross_entropy' or loss='mse'"
    elif outputs.shape[:-1] == targets.shape:
        cure = "give labels 0, 1, … as integers, or use loss='mse' for numbers"
    else:
        cure = f"its shape must be {shapes.text(targets.shape)} with one more axis for the classes"
    raise ValueError(
        f"the model's output of shape {shapes.text(outputs.shape)} does not match the labels {column!r} of shape "
        f"{shapes.text(targets.shape)} and type {targets.dtype}: {cure}"
    )


def _mse(outputs: Array, targets: Array, key: Array | None = None) -> Array:
    return _per_example((_like_targets(_accurate(outputs), targets) - targets) ** 2)


def _binary_cross_entropy(outputs: Array, targets: Array, key: Array | None = None) -> Array:
    return _per_example(binary_cross_entropy(_like_targets(_accurate(outputs), targets), targets))


def _check_numbers(shapes: Shapes) -> None:
    outputs, targets, column = _two_arrays(shapes)
    if outputs.shape not in (targets.shape, (*targets.shape, 1)):
        raise ValueError(
            f"the model's output of shape {shapes.text(outputs.shape)} does not match the targets {column!r} of shape "
            f"{shapes.text(targets.shape)}: give one target per output"
        )


LOSSES = {
    "cross_entropy": NamedLoss(_cross_entropy, _check_labels),
    "binary_cross_entropy": NamedLoss(_binary_cross_entropy, _check_numbers),
    "mse": NamedLoss(_mse, _check_numbers),
}


def loss_values(loss: str | Callable[..., Array], shapes: Shapes) -> Values:
    """The values of a loss by name, or of a user's function."""
    if callable(loss):
        return values_of_function("loss", loss, shapes)
    named = look_up("loss", LOSSES, loss)
    named.check(shapes)
    return named.values


def _accurate(outputs: Array) -> Array:
    return outputs.astype(accumulation_dtype(outputs.dtype))


def _like_targets(outputs: Array, targets: Array) -> Array:
    """Outputs (n, 1) for targets (n,) would broadcast to (n, n)."""
    return outputs.reshape(targets.shape)


def _per_example(values: Array) -> Array:
    return values.mean(axis=range(1, values.ndim)) if values.ndim > 1 else values


def _is_floating(targets: Any) -> bool:
    return jnp.issubdtype(targets.dtype, jnp.floating)


def _two_arrays(shapes: Shapes) -> Shapes:
    for what, value in (("the model's output", shapes.outputs), (f"column {shapes.column!r}", shapes.targets)):
        if not hasattr(value, "shape"):
            raise ValueError(f"{what} is a {type(value).__name__}, not one array: give loss= a function of it")
    return shapes


# --- metrics ----------------------------------------------------------------------------------------------------------


def metric_values(
    metrics: Sequence[str | Callable[..., Array]] | Mapping[str, str | Callable[..., Array]] | None, shapes: Shapes
) -> tuple[dict[str, Values], dict[str, Metric]]:
    """The values of every metric, and what is known of those given by name; None: accuracy, if there are labels."""
    if metrics is None:
        metrics = ("accuracy",) if classes_of(shapes) else ()
    values: dict[str, Values] = {}
    kinds: dict[str, Metric] = {}
    for name, metric in _named(metrics).items():
        if callable(metric):
            values[name] = values_of_function(f"metric {name!r}", metric, shapes)
        else:
            values[name], kinds[name] = _accuracy(metric, shapes), FRACTION_METRIC
    return values, kinds


def _named(metrics: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Functions by their own name."""
    if isinstance(metrics, Mapping):
        return dict(metrics)
    named = {}
    for metric in [metrics] if isinstance(metrics, str) or callable(metrics) else metrics:
        name = getattr(metric, "__name__", "<lambda>") if callable(metric) else metric
        if name == "<lambda>":
            raise ValueError("a metric has no name: give metrics={'name': function}")
        named[name] = metric
    return named


def _accuracy(name: str, shapes: Shapes) -> Values:
    """Whether the label's output is the largest (`accuracy`), or among the K largest (`top_K_accuracy`)."""
    match = re.fullmatch(r"accuracy|top_([1-9]\d*)_accuracy", name)
    if not match:
        raise ValueError(f"metric {name!r} is not known: choose accuracy, top_5_accuracy, …, or give a function")
    classes = classes_of(shapes)
    if classes is None and match[1] is None and jax.tree.map(jnp.shape, shapes.outputs) == shapes.targets.shape:
        return lambda outputs, targets, key: _per_example((outputs > 0) == (targets > 0.5))
    if classes is None:
        raise ValueError(f"metric {name!r} needs integer labels and one output per class: choose other metrics")
    largest = int(match[1] or 1)
    if largest > classes:
        raise ValueError(f"metric {name!r}: the model has {classes} outputs")
    if largest == 1:
        return lambda outputs, targets, key: outputs.argmax(axis=-1) == targets
    return lambda outputs, targets, key: (jax.lax.top_k(outputs, largest)[1] == targets[..., None]).any(axis=-1)


# --- users' functions -------------------------------------------------------------------------------------------------


def values_of_function(what: str, function: Callable[..., Array], shapes: Shapes) -> Values:
    """One value per example, by a function of one example or of a batch, with or without a key; found by tracing it.

    Tried in this order, until one gives a single value per example:
    1. one example: `function(output, target)` → a number;
    2. a batch: `function(outputs, targets)` → one number per example;
    3. a batch: `function(outputs, targets)` → a number, its mean; called with batches of one, so padding is left out.
    """
    keyed = with_key(function, 2)
    failures = {}
    for form in (_of_example, _of_batch, _of_batches_of_one):
        values = form(keyed)
        try:
            shape = _traced(values, shapes, with_key=True)
        except Exception as error:  # the user's code may raise anything
            failures[form] = first_line(error)
            continue
        if shape == (shapes.examples,):
            _check_without_key(what, values, shapes)
            return values
        failures[form] = f"it returns shape {shapes.text(shape)}: return one number per example, e.g. the mean"
    raise ValueError(
        f"the {what} cannot be used with outputs of shape {_texts(shapes.outputs, shapes)} and targets of shape "
        f"{_texts(shapes.targets, shapes)}: {failures[_of_batch]}"
    )


def _of_example(function: Callable[..., Array]) -> Values:
    def values(outputs: Any, targets: Any, key: Array | None) -> Array:
        if key is None:
            return jax.vmap(lambda output, target: function(output, target, None))(outputs, targets)
        keys = jax.random.split(key, len(jax.tree.leaves(targets)[0]))
        return jax.vmap(function)(outputs, targets, keys)

    return values


def _of_batch(function: Callable[..., Array]) -> Values:
    return function


def _of_batches_of_one(function: Callable[..., Array]) -> Values:
    batch_of_one = lambda tree: jax.tree.map(lambda leaf: leaf[None], tree)
    return _of_example(lambda output, target, key: function(batch_of_one(output), batch_of_one(target), key))


def _traced(values: Values, shapes: Shapes, with_key: bool) -> tuple[int, ...]:
    if not with_key:
        result = jax.eval_shape(lambda outputs, targets: values(outputs, targets, None), *shapes[:2])
    else:
        result = jax.eval_shape(values, *shapes[:2], jax.random.key(0))
    return result.shape


def _check_without_key(what: str, values: Values, shapes: Shapes) -> None:
    try:
        _traced(values, shapes, with_key=False)
    except Exception as error:
        raise ValueError(
            f"the {what} fails when its key is None, as it is in evaluation: {first_line(error)}"
        ) from error


def _texts(tree: PyTree, shapes: Shapes) -> str:
    return ", ".join(shapes.text(leaf.shape) for leaf in jax.tree.leaves(tree))

"""A task from a user's model: flax (linen, nnx), equinox, haiku, or a pair of functions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.data.accept import as_client_data, check_same_classes
from fedtrue.data.batches import device_rows
from fedtrue.data.client_data import ClientData
from fedtrue.models.adapters import Inputs, Network, adapt
from fedtrue.models.calls import first_line
from fedtrue.models.lora import Lora, lora_subset
from fedtrue.models.named_leaves import named_leaves, with_leaves
from fedtrue.models.trained_subset import ModelStateError, Trainable, TrainedSubset, trained_subset
from fedtrue.precision import float64
from fedtrue.tasks.data_checks import check_label_range, check_same_columns
from fedtrue.tasks.metric import declared_metrics
from fedtrue.tasks.supervised_losses import Shapes, Values, averaged, loss_values, metric_values
from fedtrue.tasks.task import Task, check_metrics, with_precision
from fedtrue.types import Array, Batch, LossFunction, Params, PyTree, Sums

TRACED_EXAMPLES = 97  # in the batch that is traced: a prime, so that no other axis is likely to have this size


def supervised(
    model: Any,
    clients: Any,
    *,
    loss: str | Callable[..., Array] = "cross_entropy",
    metrics: Sequence[str | Callable[..., Array]] | Mapping[str, str | Callable[..., Array]] | None = None,
    inputs: str | Sequence[str] = "x",
    targets: str = "y",
    test: Any = None,
    validation: Any = None,
    batch_size: int = 32,
    trainable: Trainable | Lora | None = None,
    params: PyTree | None = None,
    ignored_label: int | None = None,
    higher_is_better: Sequence[str] = (),
    lower_is_better: Sequence[str] = (),
    percent: Sequence[str] = (),
    name: str = "own",
    precision: str | None = None,
    **settings: Any,
) -> Task:
    """A task from your model and your clients. Everything is checked here, by tracing, before anything is compiled.

    Args:
        model: a flax.linen module, a flax.nnx module, an equinox module, a haiku transform, or a pair
            (`init(key)` → weights, `apply(weights, inputs)` → outputs of a batch; `apply` may take a `key`).
        clients: a list of dicts of arrays, a dict of them by client name, or `ClientData`.
        loss: "cross_entropy" (integer labels; also one per position of a sequence), "binary_cross_entropy" (one 0 or 1
            per output), "mse", or a function `loss(outputs, targets)` of one example or of a batch, also with a `key`.
        metrics: "accuracy", "top_5_accuracy" …, or functions like `loss`, in a list, or in a dict by name. Without it
            accuracy, if the targets are labels.
        inputs: the column that the model gets, or several, which it gets as arguments in this order.
        targets: the column of labels or numbers.
        test: clients to evaluate on, like `clients`.
        validation: more clients to evaluate on.
        batch_size: examples per local step.
        trainable: what is trained: a function of the weight's name, such as `lambda name: "head" in name`; names of
            layers or weights, or globs ("Dense_1", "*/bias"), in a list; or `ft.tasks.lora(…)`. Without it all
            floating-point weights.
        params: weights to start from, such as pretrained ones, in place of the model's `init`.
        ignored_label: a label that counts neither in the loss nor in the accuracy, such as padding of sequences.
        higher_is_better: names of your own metrics to maximise.
        lower_is_better: names of your own metrics to minimise.
        percent: those of your own metrics that are fractions of 1, shown as percentages.
        name: of the task, in records and reports.
        precision: "bfloat16" casts weights and inputs for loss and metrics; weights, traces and sums stay float32.
        **settings: other fields of `Task`, e.g. `cohort`, `local_epochs`, `rounds`.

    Returns:
        A task for `ft.train`. Its weights are the trained ones only; `ft.load_weights` fills in your model.

    >>> import fedtrue as ft
    >>> import numpy as np
    >>> init = lambda key: {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}
    >>> apply = lambda weights, x: x @ weights["w"] + weights["b"]
    >>> clients = {"ann": {"x": np.ones((4, 3)), "y": np.array([0, 1, 1, 1])}}
    >>> task = ft.tasks.supervised((init, apply), clients, trainable=["b"])
    >>> result = ft.train(task, ft.fedopt(ft.client.sgd(0.1)), rounds=3)
    >>> result.params["w"], result.params["b"].shape
    (None, (2,))
    """
    columns = [inputs] if isinstance(inputs, str) else list(inputs)
    data = _checked_data({"train": clients, "validation": validation, "test": test}, [*columns, targets])
    with float64(settings.get("float64", False)):
        network, subset = _network(model, _first_rows(data["train"], columns), params, trainable)
        shapes = _traced_shapes(network, subset, data["train"], columns, targets)
        values, (metric_functions, kinds) = loss_values(loss, shapes), metric_values(metrics, shapes)
    if loss == "cross_entropy":
        for part in data.values():
            check_label_range(part, targets, shapes.outputs.shape[-1], ignored_label)

    def outputs_of(params: Params, batch: Batch, key: Array | None) -> Any:
        weights = subset.complete(params, batch.get("constants"))
        return network.apply(weights, tuple(batch[column] for column in columns), key)

    batch_loss, batch_metrics = _batch_functions(outputs_of, targets, ignored_label, values, metric_functions)
    task = Task(
        name=name,
        init=subset.init,
        loss=batch_loss,
        metrics=batch_metrics,
        metric_kinds={**kinds, **declared_metrics(higher_is_better, lower_is_better, percent)},
        train=data["train"],
        validation=data.get("validation"),
        test=data.get("test"),
        batch_size=batch_size,
        constants=subset.others,
        model_weights=None if subset.others is None else subset.complete,
        **settings,
    )
    check_metrics(task)
    return with_precision(task, precision) if precision else task


def _checked_data(splits: Mapping[str, Any], columns: Sequence[str]) -> dict[str, ClientData]:
    """The splits that are given, with these columns only: others would take memory on the device."""
    data: dict[str, ClientData] = {}
    for split, given in splits.items():
        if given is not None or split == "train":
            data[split] = as_client_data(given, "clients" if split == "train" else split, columns)
            check_same_columns(data[split], data["train"], split)
            check_same_classes(data["train"], data[split], split)
    return data


def _first_rows(data: ClientData, columns: Sequence[str]) -> Inputs:
    """A batch of one example."""
    rows = device_rows(data.columns, data.starts[:1])
    return tuple(rows[column] for column in columns)


def _batch_functions(
    outputs_of: Callable[[Params, Batch, Array | None], Any],
    targets: str,
    ignored_label: int | None,
    values: Values,
    metric_functions: Mapping[str, Values],
) -> tuple[LossFunction, Callable[[Params, Batch], Sums]]:
    """The loss of a batch in training, and the metrics of a batch in evaluation, which has no key."""

    def average(found: Array, batch: Batch) -> tuple[Array, tuple[Array, Array]]:
        return averaged(found, batch["mask"], None if ignored_label is None else batch[targets] != ignored_label)

    def batch_loss(params: Params, batch: Batch) -> tuple[Array, Sums]:
        key = batch["key"]
        outputs = outputs_of(params, batch, key)
        mean, sums = average(values(outputs, batch[targets], jax.random.fold_in(key, 1)), batch)
        return mean, {"loss": sums}

    def batch_metrics(params: Params, batch: Batch) -> Sums:
        outputs = outputs_of(params, batch, None)
        functions = {"loss": values, **metric_functions}
        return {name: average(of(outputs, batch[targets], None), batch)[1] for name, of in functions.items()}

    return batch_loss, batch_metrics


def _network(
    model: Any, inputs: Inputs, params: PyTree | None, trainable: Trainable | Lora | None
) -> tuple[Network, TrainedSubset]:
    """The model as functions, and the part of its weights that is trained."""
    network = adapt(model, inputs)
    described = ", ".join(f"{leaf.shape[1:]}" for leaf in jax.tree.leaves(inputs))
    try:
        shapes = jax.eval_shape(network.init, jax.random.key(0))
    except Exception as error:
        raise _one_line(f"the model cannot be initialised for inputs of shape {described}", error) from error
    init = network.init
    if params is not None:
        given = params["params"] if isinstance(params, Mapping) and set(params) == {"params"} else params
        start = jax.tree.map(jnp.asarray, with_leaves(shapes, named_leaves(given), "params"))
        init = lambda key: start
    return network, lora_subset(init, trainable) if isinstance(trainable, Lora) else trained_subset(init, trainable)


def _traced_shapes(
    network: Network, subset: TrainedSubset, data: ClientData, columns: Sequence[str], targets: str
) -> Shapes:
    """What the model returns for a batch, in training and in evaluation; nothing is computed."""
    first = device_rows(data.columns, data.starts[:1])
    batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((TRACED_EXAMPLES, *leaf.shape[1:]), leaf.dtype), first)
    described = ", ".join(f"{name!r} {leaf.shape[1:]}" for name in columns for leaf in jax.tree.leaves(first[name]))
    apply = lambda inputs, key: network.apply(subset.complete(subset.init(jax.random.key(0))), inputs, key)
    inputs = tuple(batch[column] for column in columns)
    try:
        outputs = jax.eval_shape(apply, inputs, jax.random.key(0))
    except Exception as error:
        raise _one_line(f"the model cannot be applied to a batch of inputs {described}", error) from error
    try:
        jax.eval_shape(lambda inputs: apply(inputs, None), inputs)
    except Exception as error:
        raise _one_line(
            "the model cannot be evaluated without a random key: give it an argument `train` or `deterministic`", error
        ) from error
    shapes = Shapes(outputs, batch[targets], targets)
    for leaf in jax.tree.leaves(outputs):
        if leaf.shape[:1] != (TRACED_EXAMPLES,):
            raise ValueError(
                f"the model's output has shape {shapes.text(leaf.shape)} for a batch of inputs {described}: "
                "its first axis must count the examples; vectorise a model of one example with jax.vmap"
            )
    return shapes


def _one_line(what: str, error: Exception) -> ValueError:
    """An error of the model's library, its first line only."""
    return error if isinstance(error, ModelStateError) else ValueError(f"{what}: {first_line(error)}")

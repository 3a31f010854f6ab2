"""A task: data, model, loss, metrics, and the settings its authors recommend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.data.accept import Clients, as_client_data, check_same_classes
from fedtrue.data.batches import device_rows, steps_per_epoch
from fedtrue.data.client_data import ClientData
from fedtrue.models.calls import first_line, takes_key, with_key
from fedtrue.models.trained_subset import trained_subset
from fedtrue.names import look_up
from fedtrue.precision import PRECISIONS, computed_in, float64
from fedtrue.spec import with_spec
from fedtrue.tasks.metric import Metric, declared_metrics, first_undeclared
from fedtrue.types import Array, Batch, LossFunction, Params, PyTree, Sums

Count = Callable[[ClientData], np.ndarray]  # data → one number per client

COUNTS: Mapping[str, Count] = {
    "examples": lambda data: np.asarray(data.sizes, np.float64),
    "uniform": lambda data: np.ones(len(data)),
}


class Rates(NamedTuple):
    """The best learning rates that were found for a method on a task (the paper prints their logarithms)."""

    client: float
    server: float
    server_epsilon: float | None = None  # ε of an adaptive server optimizer


@dataclass(frozen=True, kw_only=True)
class Task:
    """A learning problem: data of many clients, model, loss, metrics and default settings.

    `ft.tasks` has the published tasks; `ft.tasks.from_arrays` makes a task from your own arrays. A batch is a dict of
    the data's columns, `mask` (0 on the padding of a short batch) and `key` (its own random key); a task with
    `constants` finds them there too.
    """

    name: str
    init: Callable[[Array], Params]  # random key → initial weights
    loss: LossFunction  # (params, batch) → (scalar to minimise, sums to record)
    metrics: Callable[[Params, Batch], Sums]  # (params, batch) → sums
    metric_kinds: Mapping[str, Metric] = field(default_factory=dict)  # for names other than loss, accuracy, recall …
    train: ClientData
    validation: ClientData | None = None
    test: ClientData | None = None
    unseen: ClientData | None = None  # clients that never train: `ft.tasks.hold_out_clients`
    holdout_clients: float | None = None  # the fraction of clients that was held out
    batch_size: int
    accumulate: int = 1  # batches per local step: a step is that of one batch of all their examples
    summed_loss: bool = False  # the loss is a sum over the examples of a batch, not their mean: weighting "batches"
    evaluation_batch_size: int = 256
    evaluation_limit: int | None = None  # examples of a split that are evaluated; None: all
    cohort: int | None = None  # clients per round; None: all
    local_epochs: int = 1
    shuffle: bool = True  # False: every epoch in the stored order
    weighting: str = "examples"  # what a client's weight in the objective is proportional to
    counts: Mapping[str, Count] = field(default_factory=dict)  # more weightings, or replacements of those in COUNTS
    rounds: int = 1500
    recommended: Mapping[tuple[str, str, str], Rates] = field(default_factory=dict)  # by (server, client, correction)
    float64: bool = False  # compute in float64
    precision: str | None = None  # set by `with_precision`; None: as loss and metrics compute by themselves
    source: str = ""  # one line that names the data
    constants: PyTree = None  # arrays that loss and metrics need besides the weights: `batch["constants"]`
    model_weights: Callable[[Params], PyTree] | None = (
        None  # trained weights → all weights of the model; None: the same
    )
    render: Callable[[Mapping[str, Any]], str | np.ndarray] | None = None  # one example as text or as an image
    spec: Any = field(default=None, init=False, repr=False, compare=False)  # name and options; None: not built by name
    _counted: dict[str, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_positive(batch_size=self.batch_size, accumulate=self.accumulate)
        if self.summed_loss and self.weighting == "examples":
            raise ValueError(
                f"task {self.name!r} sums its loss over a batch, so the mean loss of a client's batches counts its "
                'examples already, once per batch: set weighting="batches"'
            )

    @property
    def examples_per_step(self) -> int:
        """Of all batches that one local step accumulates."""
        return self.batch_size * self.accumulate

    @property
    def held_out_splits(self) -> dict[str, ClientData]:
        """The data that is evaluated, by name: validation, test, and the clients that never train."""
        splits = {"validation": self.validation, "test": self.test, "unseen": self.unseen}
        return {name: data for name, data in splits.items() if data is not None}

    def client_weights(self, weighting: str | None = None) -> np.ndarray:
        """The weight of every train client.

        Args:
            weighting: "examples", "uniform", "batches" (those of one epoch) or a key of `counts`; by default the task's
                own.

        Returns:
            One number per client, not normalised; computed once per task.

        >>> import fedtrue as ft
        >>> ft.tasks.quadratic(weights=[1.0, 3.0]).client_weights().tolist()
        [0.25, 0.75]
        """
        batches = lambda data: steps_per_epoch(np.asarray(data.sizes), self.examples_per_step)
        weighting, counts = weighting or self.weighting, {**COUNTS, "batches": batches, **self.counts}
        if weighting not in counts:
            *others, last = map(repr, counts)
            cure = f"choose weighting {', '.join(others)} or {last}"
            raise ValueError(f"task {self.name!r} does not count {weighting}: {cure}")
        if weighting not in self._counted:
            self._counted[weighting] = np.asarray(counts[weighting](self.train), np.float64)
        return self._counted[weighting]

    def steps_of_clients(self, local_steps: int | Sequence[int] | None = None) -> np.ndarray:
        """The number of local steps of every train client in one round.

        Args:
            local_steps: one number for all clients, or one per client; by default `local_epochs` passes over the data.

        Returns:
            One integer per client.

        >>> import fedtrue as ft
        >>> ft.tasks.quadratic().steps_of_clients([2, 30]).tolist()
        [2, 30]
        """
        sizes = np.asarray(self.train.sizes)
        if local_steps is None:
            return steps_per_epoch(sizes, self.examples_per_step) * self.local_epochs
        steps = np.asarray(local_steps)
        if steps.ndim == 0:
            steps = np.full(len(sizes), local_steps)
        if steps.shape != sizes.shape:
            raise ValueError(
                f"local_steps has {steps.size} entries for {len(sizes)} clients: give one number, or one per client"
            )
        if not np.issubdtype(steps.dtype, np.integer) or (steps < 1).any():
            raise ValueError(f"local_steps must be whole numbers at least 1, not {local_steps!r}")
        return steps

    def multipliers_of_clients(self, rate_multipliers: Sequence[float] | None = None) -> np.ndarray:
        """γ_i of every train client, which multiplies its learning rate: one per client if given, else 1."""
        clients = len(self.train)
        if rate_multipliers is None:
            return np.ones(clients)
        gamma = np.asarray(rate_multipliers, np.float64)
        if gamma.shape != (clients,):
            raise ValueError(f"rate_multipliers has {gamma.size} entries for {clients} clients: give one per client")
        if not (np.isfinite(gamma).all() and (gamma > 0).all()):
            raise ValueError(f"rate_multipliers must be finite and above 0, not {list(rate_multipliers)}")
        return gamma


def check_metrics(task: Task) -> None:
    """Raise a ValueError for a metric without a direction (higher or lower is better). Traces the task only."""
    names = metric_names(task)
    if name := first_undeclared([*names.evaluated, *names.trained], task.metric_kinds):
        raise ValueError(
            f"task {task.name!r} does not say whether a higher {name!r} is better: add higher_is_better=({name!r},) or "
            f"lower_is_better=({name!r},) to from_arrays, or metric_kinds={{{name!r}: Metric(…)}} to Task"
        )


class MetricNames(NamedTuple):
    """The metrics that a task records."""

    evaluated: list[str]  # on held-out data
    trained: list[str]  # on the training batches


def metric_names(task: Task) -> MetricNames:
    """The names of all metrics that evaluation and training record. Traces the task only."""
    data = task.train
    with float64(task.float64):
        key = jax.random.key(0)
        params = jax.eval_shape(task.init, key)
        batch = {**device_rows(data.columns, data.starts[:1]), "mask": jnp.ones(1), "key": key}
        evaluated, (_, trained) = jax.eval_shape(task.metrics, params, batch), jax.eval_shape(task.loss, params, batch)
        return MetricNames(list(evaluated), list(trained))


def split_validation_within(train: ClientData, fraction: float) -> tuple[ClientData, ClientData | None]:
    """(train, validation): hold out the last `fraction` of every client's examples; 0 holds out none."""
    _check_fraction("validation", fraction)
    return train.split_within(1 - fraction) if fraction else (train, None)


def split_validation_clients(train: ClientData, fraction: float, seed: int = 0) -> tuple[ClientData, ClientData | None]:
    """(train, validation): hold out a random `fraction` of the clients; 0 holds out none."""
    _check_fraction("validation", fraction)
    if not fraction:
        return train, None
    validation, remaining = train.split_clients(fraction, seed)
    return remaining, validation


def check_positive(**settings: int) -> None:
    """Raise a ValueError for the first setting that is no whole number, or below 1."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise ValueError(f"{name} is {value!r}: choose a whole number of at least 1")
        if value < 1:
            raise ValueError(f"{name} is {value}: choose at least 1")


def _check_fraction(name: str, fraction: float) -> None:
    if not 0 <= fraction < 1:
        raise ValueError(f"{name} is {fraction}: choose a fraction of at least 0 and below 1")


def masked_mean(per_example: Array, mask: Array) -> tuple[Array, tuple[Array, Array]]:
    """The mean over the examples of a batch without its padding, and the (total, count) it is computed from.

    >>> mean, (total, count) = masked_mean(jnp.array([1.0, 3.0, 9.0]), jnp.array([1.0, 1.0, 0.0]))
    >>> float(mean), float(total), float(count)
    (2.0, 4.0, 2.0)
    """
    total, count = jnp.sum(per_example * mask), jnp.sum(mask)
    return total / jnp.maximum(count, 1), (total, count)


def from_arrays(
    clients: Clients,
    init: Callable[[Array], Params],
    loss: Callable[..., Array],
    *,
    metrics: Callable[[Params, Batch], Mapping[str, Array]] | None = None,
    higher_is_better: Sequence[str] = (),
    lower_is_better: Sequence[str] = (),
    percent: Sequence[str] = (),
    test: Clients | None = None,
    name: str = "own",
    batch_size: int = 32,
    precision: str | None = None,
    **settings: Any,
) -> Task:
    """A task from plain arrays and the loss of one example.

    Args:
        clients: a list with a dict of arrays per client, or a dict from the client's name to its dict of arrays, or
            `ClientData` (see `ft.data`); the leading axis counts examples.
        init: random key → initial weights, any tree of arrays. Those that are not of floating point are not trained.
        loss: `loss(params, example)` of ONE example, a dict of array rows. Batching and masking are done here. With a
            third argument, `loss(params, example, key)`, it gets a random key of its own per example, e.g. for dropout;
            in evaluation the key is None.
        metrics: `metrics(params, example)` → {name: number}, also of one example.
        higher_is_better: names of metrics to maximise. Names that start with accuracy, recall or precision are known.
        lower_is_better: names of metrics to minimise. `loss` is known.
        percent: those metrics that are fractions of 1, shown as percentages.
        test: clients to evaluate on, like `clients`.
        name: of the task, in records and reports.
        batch_size: examples per local step.
        precision: "bfloat16" casts weights and inputs for loss and metrics; weights, traces and sums stay float32.
        **settings: other fields of `Task`, e.g. `cohort`, `local_epochs`, `accumulate`, `rounds`.

    Returns:
        A task for `ft.train`.

    >>> import fedtrue as ft
    >>> task = ft.tasks.from_arrays(
    ...     clients=[{"x": np.array([1.0, 2.0])}, {"x": np.array([6.0])}],
    ...     init=lambda key: jnp.zeros(()),
    ...     loss=lambda params, example: (params - example["x"]) ** 2,
    ... )
    >>> len(task.train), task.client_weights().tolist()  # by examples
    (2, [2.0, 1.0])
    """
    train, held_out = as_client_data(clients), None if test is None else as_client_data(test, "test")
    check_same_classes(train, held_out)
    with float64(settings.get("float64", False)):
        subset = trained_subset(init)
        example_loss = _loss_of_example(with_key(loss, 2), subset.complete)
        _check_example_loss(example_loss, subset.init, train)
    batch_loss, batch_metrics = _batched(example_loss, takes_key(loss, 2), metrics, subset.complete)
    task = Task(
        name=name,
        init=subset.init,
        loss=batch_loss,
        metrics=batch_metrics,
        metric_kinds=declared_metrics(higher_is_better, lower_is_better, percent),
        train=train,
        test=held_out,
        batch_size=batch_size,
        model_weights=None if subset.others is None else subset.complete,
        **settings,
    )
    if precision is not None:
        task = with_precision(task, precision)
    if metrics:
        check_metrics(task)
    return task


def with_precision(task: Task, precision: str) -> Task:
    """The task with loss and metrics computed in this precision, for models that do not choose theirs.

    Args:
        task: your own task; the published ones have an option `dtype`.
        precision: "float32", or "bfloat16": weights and inputs are cast before the model sees them. The weights that
            are trained, the traces and all sums stay float32.

    Returns:
        The task, with its precision.

    >>> import fedtrue as ft
    >>> task = ft.tasks.from_arrays(
    ...     clients=[{"x": np.array([1.0, 2.0])}],
    ...     init=lambda key: jnp.zeros(()),
    ...     loss=lambda params, example: (params - example["x"]) ** 2,
    ... )
    >>> ft.tasks.with_precision(task, "bfloat16").precision
    'bfloat16'
    """
    dtype = look_up("precision", PRECISIONS, precision)
    if task.float64:
        raise ValueError(f"task {task.name!r} computes in float64: leave precision out")
    if task.precision is not None:
        raise ValueError(f"task {task.name!r} has precision {task.precision!r} already: set it once")
    cast = replace(task, precision=precision)
    if precision != "float32":
        cast = replace(cast, loss=computed_in(dtype, task.loss), metrics=computed_in(dtype, task.metrics))
    return with_spec(cast, task.spec)


ExampleLoss = Callable[[Params, Batch, Array | None], Array]  # (params, example, key) → its loss; key None: evaluation


def _loss_of_example(loss: ExampleLoss, complete: Callable[[Params], PyTree]) -> ExampleLoss:
    return lambda params, example, key: loss(complete(params), example, key)


def _check_example_loss(loss: ExampleLoss, init: Callable[[Array], Params], data: ClientData) -> None:
    """Refuses a loss that returns no single number, or fails in evaluation. Traces it only."""
    key = jax.random.key(0)
    params = jax.eval_shape(init, key)
    example = jax.tree.map(lambda column: column[0], device_rows(data.columns, data.starts[:1]))
    try:
        shape = np.shape(jax.eval_shape(loss, params, example, key))
    except Exception as error:  # the user's code may raise anything
        columns = ", ".join(map(repr, example))
        raise ValueError(f"the loss fails on one example with columns {columns}: {first_line(error)}") from error
    if shape != ():
        raise ValueError(f"the loss of one example has shape {shape}: return one number, e.g. its mean")
    try:
        jax.eval_shape(lambda params, example: loss(params, example, None), params, example)
    except Exception as error:
        raise ValueError(f"the loss fails when its key is None, as it is in evaluation: {first_line(error)}") from error


def _batched(
    loss: ExampleLoss,
    keyed: bool,
    metrics: Callable[[Params, Batch], Mapping[str, Array]] | None,
    complete: Callable[[Params], PyTree],
) -> tuple[LossFunction, Callable[[Params, Batch], Sums]]:
    """The loss and metrics of a batch, from those of one example."""

    def example_metrics(params: Params, example: Batch) -> dict[str, Array]:
        return {"loss": loss(params, example, None), **(metrics(complete(params), example) if metrics else {})}

    def examples_of(batch: Batch) -> dict[str, Any]:
        return {column: value for column, value in batch.items() if column not in ("mask", "key")}

    def batch_loss(params: Params, batch: Batch) -> tuple[Array, Sums]:
        keys = jax.random.split(batch["key"], len(batch["mask"])) if keyed else None
        per_example = jax.vmap(loss, (None, 0, 0))(params, examples_of(batch), keys)
        mean, sums = masked_mean(per_example, batch["mask"])
        return mean, {"loss": sums}

    def batch_metrics(params: Params, batch: Batch) -> Sums:
        values = jax.vmap(example_metrics, (None, 0))(params, examples_of(batch))
        return {key: masked_mean(value, batch["mask"])[1] for key, value in values.items()}

    return batch_loss, batch_metrics

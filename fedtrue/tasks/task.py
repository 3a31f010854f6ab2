"""A task: data, model, loss, metrics, and the settings its authors recommend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.data.batches import device_rows, steps_per_epoch
from fedtrue.data.client_data import ClientData
from fedtrue.precision import float64
from fedtrue.tasks.metric import Metric, declarations, undeclared

Sums = dict[str, tuple[Any, Any]]  # name → (total, count): sums, never means, so that they add up
Count = Callable[[ClientData], np.ndarray]  # data → one number per client

COUNTS: Mapping[str, Count] = {
    "examples": lambda data: np.asarray(data.sizes, np.float64),
    "uniform": lambda data: np.ones(len(data)),
}


class Rates(NamedTuple):
    """Hyper-parameters someone found best, as numbers (the paper prints their logarithms)."""

    client: float
    server: float
    server_epsilon: float | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is to be learnt, from whom, and how well.

    A batch is a dict of the data's columns, `mask` (0 on the padding of a short batch) and `key` (its own randomness).
    """

    name: str
    init: Callable[[Any], Any]  # key → params
    loss: Callable[[Any, Any], tuple[Any, Sums]]  # (params, batch) → (scalar to minimise, sums to record)
    metrics: Callable[[Any, Any], Sums]  # (params, batch) → sums
    metric_kinds: Mapping[str, Metric] = field(default_factory=dict)  # of names other than loss, accuracy, recall …
    train: ClientData
    validation: ClientData | None = None
    test: ClientData | None = None
    batch_size: int
    evaluation_batch_size: int = 256
    evaluation_limit: int | None = None  # examples of a split that are looked at; None: all
    cohort: int | None = None  # clients a round; None: all
    local_epochs: int = 1
    shuffle: bool = True  # False: every epoch in the order the examples are stored
    weighting: str = "examples"
    counts: Mapping[str, Count] = field(default_factory=dict)  # weightings besides, or in place of, those of COUNTS
    rounds: int = 1500
    recommended: Mapping[tuple[str, str, str], Rates] = field(default_factory=dict)  # by (server, client, correction)
    float64: bool = False
    source: str = ""  # one line: which data this is
    render: Callable[[Mapping[str, Any]], str | np.ndarray] | None = None  # one example, as text or as a picture
    spec: Any = field(default=None, init=False, repr=False, compare=False)  # name and options; None: made by hand
    _counted: dict[str, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    def client_weights(self, weighting: str | None = None) -> np.ndarray:
        """One weight per train client, counted once per task; None: as the task's objective weighs them."""
        weighting, counts = weighting or self.weighting, {**COUNTS, **self.counts}
        if weighting not in counts:
            *others, last = map(repr, counts)
            cure = f"choose weighting {', '.join(others)} or {last}"
            raise ValueError(f"task {self.name!r} does not count {weighting}: {cure}")
        if weighting not in self._counted:
            self._counted[weighting] = np.asarray(counts[weighting](self.train), np.float64)
        return self._counted[weighting]

    def steps_of_clients(self, local_steps: int | Sequence[int] | None = None) -> np.ndarray:
        """Local steps a train client: as given (one number, or one each), else `local_epochs` passes over its data."""
        sizes = np.asarray(self.train.sizes)
        if local_steps is None:
            return steps_per_epoch(sizes, self.batch_size) * self.local_epochs
        steps = np.asarray(local_steps)
        if steps.ndim == 0:
            steps = np.full(len(sizes), local_steps)
        if steps.shape != sizes.shape:
            raise ValueError(
                f"local_steps has {steps.size} entries for {len(sizes)} clients: give one number, or one each"
            )
        if not np.issubdtype(steps.dtype, np.integer) or (steps < 1).any():
            raise ValueError(f"local_steps must be whole numbers at least 1, not {local_steps!r}")
        return steps

    def multipliers_of_clients(self, rate_multipliers: Sequence[float] | None = None) -> np.ndarray:
        """γ_i of every train client: as given, else 1."""
        clients = len(self.train)
        if rate_multipliers is None:
            return np.ones(clients)
        gamma = np.asarray(rate_multipliers, np.float64)
        if gamma.shape != (clients,):
            raise ValueError(f"rate_multipliers has {gamma.size} entries for {clients} clients: give one each")
        if not (np.isfinite(gamma).all() and (gamma > 0).all()):
            raise ValueError(f"rate_multipliers must be finite and above 0, not {list(rate_multipliers)}")
        return gamma


def check_metrics(task: Task) -> None:
    """Refuses a metric of which nobody said whether higher is better; its functions are traced and not run."""
    if name := undeclared(_metric_names(task), task.metric_kinds):
        raise ValueError(
            f"task {task.name!r} does not say whether a higher {name!r} is better: add higher_is_better=({name!r},) or "
            f"lower_is_better=({name!r},) to from_arrays, or metric_kinds={{{name!r}: Metric(…)}} to Task"
        )


def _metric_names(task: Task) -> list[str]:
    """Of what training and evaluation record."""
    data = task.train
    with float64(task.float64):
        key = jax.random.key(0)
        params = jax.eval_shape(task.init, key)
        batch = {**device_rows(data.columns, data.starts[:1]), "mask": jnp.ones(1), "key": key}
        return [*jax.eval_shape(task.metrics, params, batch), *jax.eval_shape(task.loss, params, batch)[1]]


def split_validation_within(train: ClientData, part: float) -> tuple[ClientData, ClientData | None]:
    """(train, validation): the last `part` of every client's examples; 0 keeps all for training."""
    _check_part("validation", part)
    return train.split_within(1 - part) if part else (train, None)


def split_validation_clients(train: ClientData, part: float, seed: int = 0) -> tuple[ClientData, ClientData | None]:
    """(train, validation): `part` of the clients, drawn by `seed`; 0 keeps all for training."""
    _check_part("validation", part)
    if not part:
        return train, None
    validation, rest = train.split_clients(part, seed)
    return rest, validation


def check_positive(**settings: int) -> None:
    """A ValueError for the first setting below 1."""
    for name, value in settings.items():
        if value < 1:
            raise ValueError(f"{name} is {value}: choose at least 1")


def _check_part(name: str, part: float) -> None:
    if not 0 <= part < 1:
        raise ValueError(f"{name} is {part}: choose a part of at least 0 and below 1")


def masked_mean(per_example: Any, mask: Any) -> tuple[Any, tuple[Any, Any]]:
    """Mean over the real examples of a batch, and the (total, count) it came from."""
    total, count = jnp.sum(per_example * mask), jnp.sum(mask)
    return total / jnp.maximum(count, 1), (total, count)


def from_arrays(
    clients: Sequence[Mapping[str, Any]],
    init: Callable[[Any], Any],
    loss: Callable[[Any, Any], Any],
    *,
    metrics: Callable[[Any, Any], Mapping[str, Any]] | None = None,
    higher_is_better: Sequence[str] = (),
    lower_is_better: Sequence[str] = (),
    percent: Sequence[str] = (),
    test: Sequence[Mapping[str, Any]] | None = None,
    name: str = "own",
    batch_size: int = 32,
    **settings: Any,
) -> Task:
    """A task from plain arrays: one dict of arrays a client, and a loss of ONE example, `loss(params, example)`.

    `metrics(params, example)` returns {name: number}, also for one example; batching and masking are done here. Name
    the metrics in `higher_is_better` or `lower_is_better`, and those that are shares of 1 in `percent` too; `loss` and
    names that begin with accuracy, recall or precision are known.
    """

    def example_metrics(params: Any, example: Any) -> dict[str, Any]:
        return {"loss": loss(params, example), **(metrics(params, example) if metrics else {})}

    def examples_of(batch: Any) -> dict[str, Any]:
        return {column: value for column, value in batch.items() if column not in ("mask", "key")}

    def batch_loss(params: Any, batch: Any) -> tuple[Any, Sums]:
        per_example = jax.vmap(loss, (None, 0))(params, examples_of(batch))
        mean, sums = masked_mean(per_example, batch["mask"])
        return mean, {"loss": sums}

    def batch_metrics(params: Any, batch: Any) -> Sums:
        values = jax.vmap(example_metrics, (None, 0))(params, examples_of(batch))
        return {key: masked_mean(value, batch["mask"])[1] for key, value in values.items()}

    task = Task(
        name=name,
        init=init,
        loss=batch_loss,
        metrics=batch_metrics,
        metric_kinds=declarations(higher_is_better, lower_is_better, percent),
        train=ClientData.from_clients(clients),
        test=ClientData.from_clients(test) if test is not None else None,
        batch_size=batch_size,
        **settings,
    )
    if metrics:
        check_metrics(task)
    return task

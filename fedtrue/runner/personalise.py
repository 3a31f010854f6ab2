"""Fine-tunes the final model of a run per client: what each client gains on its own held-out data."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm import client_optimizer
from fedtrue.algorithm.checks import check_float, check_int
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.method import Method
from fedtrue.data.client_data import ClientData
from fedtrue.precision import float64
from fedtrue.runner import checkpoint, folder
from fedtrue.runner.build import build_method, load_task, steps_of_clients
from fedtrue.runner.evaluation import means
from fedtrue.runner.fine_tuning import FineTuning, fine_tuned_sums
from fedtrue.runner.load import nested
from fedtrue.runner.records import CONFIG, MODEL, read_config, read_summary
from fedtrue.runner.settings import RunConfig, read_toml
from fedtrue.runner.warm_start import server_params, starting_weights
from fedtrue.spec import from_spec, part_options, with_spec
from fedtrue.tasks.metric import Metric, recorded_metric
from fedtrue.tasks.task import Task
from fedtrue.types import Params

QUANTILES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}


@dataclass(frozen=True, repr=False)
class Personalisation:
    """What every client gains by fine-tuning, on its own held-out examples. Arrays have one entry per client."""

    clients: list[str]  # names of the clients that were evaluated
    examples: np.ndarray  # held-out examples of each
    steps: np.ndarray  # local steps of each
    before: dict[str, np.ndarray]  # metric → its value with the run's model
    after: dict[str, np.ndarray]  # metric → its value after the local steps
    metrics: dict[str, Metric]  # the metric by which runs are compared first
    left_out: int  # train clients without held-out examples
    optimizer: ClientOptimizer  # of the local steps
    held_out: str  # which examples were evaluated, in words

    def gains(self, metric: str | None = None) -> np.ndarray:
        """The gain of each client: how much better the metric is after the local steps; NaN if they diverged.

        Args:
            metric: its name; by default the first one.

        Returns:
            One number per client, positive if the client gains, also for metrics of which lower is better.
        """
        name = metric or next(iter(self.metrics))
        sign = 1 if self.metrics[name].higher_is_better else -1
        return sign * (self.after[name] - self.before[name])

    def statistics(self, metric: str | None = None) -> dict[str, float]:
        """The gains in a few numbers.

        Args:
            metric: its name; by default the first one.

        Returns:
            `weighted_mean` (by held-out examples), `mean` (every client counts once), quantiles, and `loses`, the share
            of clients that lose, those that `diverged` among them; means and quantiles are of the others.
        """
        gains = self.gains(metric)
        finite = np.isfinite(gains)
        if not finite.any():
            return {"loses": 1.0, "diverged": float(len(gains))}
        quantiles = np.quantile(gains[finite], list(QUANTILES.values())).tolist()
        return {
            "weighted_mean": float(np.average(gains[finite], weights=self.examples[finite])),
            "mean": float(gains[finite].mean()),
            **dict(zip(QUANTILES, quantiles)),
            "loses": float(np.mean(~(gains >= 0))),
            "diverged": float((~finite).sum()),
        }

    def __repr__(self) -> str:
        name, found = next(iter(self.metrics)), self.statistics()
        mean = f", mean gain in {name} {found['mean']:+.4g}" if "mean" in found else ""
        return f"Personalisation({len(self.clients)} clients{mean}, {100 * found['loses']:.3g} % lose)"


def personalise(
    run: str | Path,
    task: Task | None = None,
    method: Method | None = None,
    *,
    steps: int | None = None,
    client_rate: float | None = None,
    hold_out: float | None = None,
) -> Personalisation:
    """Fine-tune the final model of a run for each client alone, and evaluate it on that client's held-out data.

    Args:
        run: the folder of a run that has ended.
        task: that of the run, if it cannot be rebuilt from its folder because it was written in Python.
        method: the same for the method.
        steps: local steps of every client; without it, as many as in a round of the run.
        client_rate: fine-tune by SGD with this learning rate; without it, by the run's client optimizer at its rate
            after the last round, from a fresh state.
        hold_out: evaluate on the last part of each client's own train examples, e.g. 0.2, and fine-tune on the others.
            Needed where no test data belongs to train clients. The run itself has trained on these examples.

    Returns:
        What each client gains. Clients without held-out examples are left out and counted. Batches have the addresses
        (seed, round, client) of the round after the last one.

    >>> import tempfile, fedtrue as ft
    >>> clients = {"ann": {"x": np.array([1.0])}, "bob": {"x": np.array([5.0])}}
    >>> loss = lambda params, example: (params - example["x"]) ** 2
    >>> task = ft.tasks.from_arrays(clients, lambda key: jnp.zeros(()), loss, test=clients)
    >>> method, folder = ft.fedopt(ft.client.sgd(0.25)), tempfile.mkdtemp() + "/run"
    >>> _ = ft.train(task, method, rounds=20, out=folder)
    >>> ft.personalise(folder, task, method, steps=1).gains().round(3)  # 3 → 2 and 4: a loss of 4 becomes 1
    array([3., 3.])
    """
    path = _check_ended(Path(run))
    config = _config(path, task, method)
    task = task or load_task(config)
    method = method or (build_method(config, task) if client_rate is None else None)
    held_out, text, tuned_task = _held_out(task, hold_out)
    clients = matching_clients(tuned_task.train, held_out)
    with float64(task.float64):
        how = _fine_tuning(config, tuned_task, method, steps, client_rate, path)
        params = jax.tree.map(jnp.asarray, _final_weights(path, task))
        evaluated = held_out.subset(np.flatnonzero(clients >= 0))
        return _measured(tuned_task, params, how, evaluated, clients[clients >= 0], text)


def _measured(
    task: Task, params: Params, how: FineTuning, held_out: ClientData, clients: np.ndarray, text: str
) -> Personalisation:
    groups = list(fine_tuned_sums(task, params, how, held_out, clients))
    before, after = (means(jax.tree.map(lambda *parts: np.concatenate(parts), *sums)) for sums in zip(*groups))
    return Personalisation(
        list(held_out.client_ids),
        np.asarray(held_out.sizes),
        how.steps[clients],
        before,
        after,
        _sorted_metrics(task, before),
        len(task.train) - len(clients),
        how.optimizer,
        text,
    )


def _sorted_metrics(task: Task, values: Mapping[str, Any]) -> dict[str, Metric]:
    """Metrics where higher is better before losses, as in tables of runs."""
    kinds = {name: recorded_metric(name, task.metric_kinds) for name in values}
    return dict(sorted(kinds.items(), key=lambda entry: (not entry[1].higher_is_better, entry[0] != "loss")))


def _check_ended(path: Path) -> Path:
    folder.check_run_folder(path, "personalise")
    summary = read_summary(path)
    if summary is None:
        raise ValueError(f"{path} has not ended: continue it with {folder.how_to_resume(path)}, then personalise")
    if summary["status"] == "diverged":
        raise ValueError(f"{path} has diverged: personalise a run with a smaller learning rate")
    if not (path / MODEL).exists():
        raise ValueError(f"{path} has no {MODEL}: train it again, records alone have no weights")
    return path


def _config(path: Path, task: Task | None, method: Method | None) -> RunConfig:
    """The settings of the run; if `task` and `method` are given, theirs are not read."""
    table = read_config(path)
    if not table.get("from_python"):
        folder.warn_if_task_file_changed(path, table.get("origin", {}), table["task"])
        return read_toml(path / CONFIG)
    if task is None or method is None:
        cure = "in Python, ft.personalise(RUN, task, method)"
        raise ValueError(f"{path} cannot be rebuilt, as some of its parts have no name: {cure}")
    names = ("cohort", "local_steps", "local_epochs", "rate_multipliers", "seed", "batch_size")
    return RunConfig(str(table["task"]), **{name: table[name] for name in names if name in table})


def _held_out(task: Task, fraction: float | None) -> tuple[ClientData, str, Task]:
    """The examples to evaluate, what they are in words, and the task whose train examples may be used."""
    if fraction is not None:
        check_float("hold_out", fraction, open_low=True, high=1.0)
        head, tail = task.train.split_within(1 - fraction)
        text = f"the last {100 * fraction:.3g} % of each client's train examples, on which the run has trained"
        return tail, text, with_spec(replace(task, train=head), task.spec)
    if task.test is None or not (matching_clients(task.train, task.test) >= 0).any():
        raise ValueError(
            f"task {task.name!r} has no test data of its train clients: hold out a part of their train examples, e.g. "
            "--hold-out 0.2 (in Python, hold_out=0.2)"
        )
    return task.test, "test examples of the same client", task


def matching_clients(train: ClientData, held_out: ClientData) -> np.ndarray:
    """For each client of `held_out` the number of the train client of the same name; −1 if there is none.

    Clients without names are the same if both data sets have equally many.
    """
    if train.named != held_out.named or (not train.named and len(train) != len(held_out)):
        return np.full(len(held_out), -1)
    number = {name: index for index, name in enumerate(train.client_ids)}
    return np.array([number.get(name, -1) for name in held_out.client_ids])


def _fine_tuning(
    config: RunConfig, task: Task, method: Method | None, steps: int | None, client_rate: float | None, path: Path
) -> FineTuning:
    rounds = (read_summary(path) or {})["rounds"]
    if client_rate is not None:
        optimizer = client_optimizer.sgd(check_float("client_rate", client_rate))
        learning_rate: Any = optimizer.learning_rate(rounds)
    else:
        assert method is not None, "a run without a given client rate has its method"
        optimizer, learning_rate = _client_of(method), method.learning_rate(rounds)
    own_steps = task.steps_of_clients(steps_of_clients(config, task) if steps is None else None)
    if steps is not None:
        own_steps = np.full(len(task.train), check_int("steps", steps, low=0))
    return FineTuning(optimizer, learning_rate, own_steps, config.rate_multipliers, config.seed, rounds)


def _client_of(method: Method) -> ClientOptimizer:
    """The client optimizer as the method was given it: MimeLite's own one keeps its statistics fixed."""
    given = part_options(method.spec).get("client")
    if given is not None:
        return from_spec(given, "client")
    if method.clients is None:
        raise ValueError(f"method {method.name!r} has no client optimizer to fine-tune with: give --client-rate 0.1")
    return method.clients.optimizer


def _final_weights(path: Path, task: Task) -> Params:
    """The trained weights; the file of weights has those of the whole model, so a part of them is in a checkpoint."""
    if task.model_weights is None:
        return starting_weights(path, task)
    saved = checkpoint.newest(path / "checkpoints", lambda line: None)
    if saved is None:
        raise ValueError(f"{path} has no checkpoint, which has the trained part of the weights: train it again")
    return starting_weights(nested(server_params(saved.arrays)), task)

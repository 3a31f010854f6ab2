"""The round loop, on one screen."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedtrue.algorithm.checks import whole
from fedtrue.algorithm.method import Method
from fedtrue.engine.simulation import ROUNDS_PER_DISPATCH, Simulation
from fedtrue.precision import float64
from fedtrue.runner.evaluation import Evaluator, Progress, means
from fedtrue.tasks.task import Task

PATIENCE = 10  # consecutive rounds in which no client is left, before the run stops
SECONDS_PER_DISPATCH = 2.0  # long enough to hide the host, short enough for a live progress bar


@dataclass(frozen=True)
class Result:
    """What training leaves behind."""

    params: Any  # NumPy arrays
    history: dict[str, np.ndarray]  # one entry a round
    evaluations: list[dict[str, Any]]  # {"round", "metrics": {split: {name: mean}}, "clients": {split: {name: spread}}}


def train(
    task: Task,
    method: Method,
    *,
    rounds: int,
    cohort: int | None = None,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
    seed: int = 0,
    lanes: int | None = None,
    evaluate_every: int | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Result:
    """Train `task` by `method` for `rounds` rounds.

    `local_steps`: one number, or one a client; without it, the task's local epochs. `rate_multipliers`: γ_i, one a
    client, η_i = γ_i η. The task's validation and test data are evaluated every `evaluate_every` rounds and at the end.
    `say` is told, before anything is compiled, how many clients train side by side and what memory that takes.
    The same seed gives the same weights, cohorts and batches, whatever the method.
    """
    whole("rounds", rounds)
    if evaluate_every is not None:
        whole("evaluate_every", evaluate_every, low=1)
    with float64(task.float64):
        simulation = Simulation(
            task,
            method,
            seed=seed,
            cohort=cohort,
            local_steps=local_steps,
            rate_multipliers=rate_multipliers,
            lanes=lanes,
        )
        if say:
            say(f"lanes: {simulation.lanes}")
        evaluator, evaluations = Evaluator(task), []
        state, infos, done, dispatch, skipped = simulation.start(), [], 0, 1, 0
        while done < rounds and skipped < PATIENCE:
            began = time.perf_counter()
            pause = min(rounds, (done // evaluate_every + 1) * evaluate_every if evaluate_every else rounds)
            state, info = simulation.run(state, done, min(dispatch, pause - done, simulation.rounds_per_dispatch))
            infos.append(info)
            done += len(info.clients)
            skipped = _say_skipped(info.clients, done, skipped)
            dispatch = _next_dispatch(len(info.clients), time.perf_counter() - began)
            if done == pause or skipped >= PATIENCE:
                evaluations += _evaluate(evaluator, task, state.server.params, done)
            if progress:
                progress(done, rounds, {name: float(values[-1]) for name, values in means(info.sums).items()})
        return Result(jax.tree.map(np.asarray, state.server.params), _history(infos), evaluations)


def _evaluate(evaluator: Evaluator, task: Task, params: Any, done: int) -> list[dict[str, Any]]:
    """One entry with the metrics of every held-out split, none if the task has no held-out data."""
    splits = {name: data for name, data in (("validation", task.validation), ("test", task.test)) if data is not None}
    found = {name: evaluator(params, data, task.evaluation_limit) for name, data in splits.items()}
    if not found:
        return []
    metrics = {name: evaluation.metrics for name, evaluation in found.items()}
    spread = {name: {m: evaluation.quantiles(m) for m in evaluation.metrics} for name, evaluation in found.items()}
    return [{"round": done, "metrics": metrics, "clients": spread}]


def _next_dispatch(rounds: int, seconds: float) -> int:
    """As many rounds as fit the wanted time, at most doubling: the first dispatch also compiled."""
    return int(np.clip(rounds * SECONDS_PER_DISPATCH / max(seconds, 1e-6), 1, min(8 * rounds, ROUNDS_PER_DISPATCH)))


def _say_skipped(clients: np.ndarray, done: int, skipped_before: int) -> int:
    """Warns of rounds in which no client was left; returns how many of them end this dispatch in a row."""
    empty = clients == 0
    if empty.any():
        first = done - len(clients) + int(empty.argmax())
        warnings.warn(
            f"round {first}: every client's update was not finite, the round is skipped"
            f" ({int(empty.sum())} such rounds of the last {len(empty)}); try a smaller client learning rate",
            stacklevel=3,
        )
    return len(empty) + skipped_before if empty.all() else int(empty[::-1].argmin())


def _history(infos: list[Any]) -> dict[str, np.ndarray]:
    if not infos:
        return {}
    info = jax.tree.map(lambda *parts: np.concatenate(parts), *infos)
    return {
        "round": np.arange(len(info.clients)),
        **means(info.sums),
        "clients": info.clients,
        "dropped": info.dropped,
        "pseudo_gradient_norm": info.pseudo_gradient_norm,
        "steps": info.steps.sum(axis=1),
        "cohort": info.cohort,
        "idle_steps": info.idle_steps,
    }

"""The round loop, on one screen."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedtrue.algorithm.method import Method
from fedtrue.engine.simulation import ROUNDS_PER_DISPATCH, Simulation
from fedtrue.precision import float64
from fedtrue.runner.evaluation import Progress, means
from fedtrue.tasks.task import Task

PATIENCE = 10  # consecutive rounds in which no client is left, before the run stops
SECONDS_PER_DISPATCH = 2.0  # long enough to hide the host, short enough for a live progress bar


@dataclass(frozen=True)
class Result:
    """What training leaves behind."""

    params: Any  # NumPy arrays
    history: dict[str, np.ndarray]  # one entry a round


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
    progress: Progress | None = None,
) -> Result:
    """Train `task` by `method` for `rounds` rounds.

    `local_steps`: one number, or one a client; without it, the task's local epochs. `rate_multipliers`: γ_i, one a
    client, η_i = γ_i η. The same seed gives the same weights, cohorts and batches, whatever the method.
    """
    if rounds < 0:
        raise ValueError(f"rounds must be at least 0, not {rounds}")
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
        state, infos, done, dispatch, skipped = simulation.start(), [], 0, 1, 0
        while done < rounds and skipped < PATIENCE:
            began = time.perf_counter()
            state, info = simulation.run(state, done, min(dispatch, rounds - done))
            infos.append(info)
            done += len(info.clients)
            skipped = _say_skipped(info.clients, done, skipped)
            dispatch = _next_dispatch(len(info.clients), time.perf_counter() - began)
            if progress:
                progress(done, rounds, {name: float(values[-1]) for name, values in means(info.sums).items()})
        return Result(jax.tree.map(np.asarray, state.server.params), _history(infos))


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

"""Clients that are slow or do not reply, simulated.

speed_i = exp(spread · z_i), z_i normal       drawn once per client: the median client has speed 1
τ_i ← min(τ_i, ⌊deadline · speed_i⌋)          the steps that it finishes before the deadline of a round
P(no reply) = dropout                         drawn per round and client
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedtrue.algorithm.checks import check_float
from fedtrue.names import look_up

LATE = {
    "partial": "a client that is not ready at the deadline sends the steps that it has finished",
    "drop": "a client that is not ready at the deadline sends nothing",
}
SPEEDS = 5  # the stream of the speeds, besides those that other parts of fedtrue draw from a run's seed


@dataclass(frozen=True)
class Availability:
    """Stragglers and dropouts. A client that does not reply counts as `missing`; the weights of the others are
    renormalised.

    Args:
        dropout: the chance per round that a client of the cohort does not reply.
        deadline: the length of a round, in local steps of the median client.
        speed_spread: σ of the logarithm of the clients' speeds; 0: all are equally fast.
        late: "partial" or "drop": what a client sends that has not finished its steps at the deadline. One that has
            not finished a single step sends nothing.

    >>> import fedtrue as ft
    >>> slow = ft.Availability(deadline=5)
    >>> slow.steps(np.array([3, 8]), seed=0).tolist()
    [3, 5]
    """

    dropout: float = 0.0
    deadline: float | None = None
    speed_spread: float = 0.0
    late: str = "partial"

    def __post_init__(self) -> None:
        check_float("dropout", self.dropout, high=1.0)
        check_float("speed_spread", self.speed_spread)
        look_up("late", LATE, self.late)
        if self.deadline is not None:
            check_float("deadline", self.deadline, open_low=True)
        elif self.speed_spread or self.late != "partial":
            raise ValueError("speed_spread and late have no effect without a deadline: give one, e.g. deadline=20")

    def speeds(self, clients: int, seed: int) -> np.ndarray:
        """Steps per unit of time, one per client; a client's speed does not depend on the number of clients."""
        generator = np.random.default_rng([SPEEDS, seed])
        return np.exp(self.speed_spread * generator.standard_normal(clients))

    def steps(self, steps: np.ndarray, seed: int) -> np.ndarray:
        """The steps that each client finishes in a round, of those it should; 0: it never replies."""
        if self.deadline is None:
            return steps
        finished = np.floor(self.deadline * self.speeds(len(steps), seed)).astype(np.int64)
        in_time = np.minimum(steps, finished)
        if self.late == "drop":
            in_time = np.where(finished < steps, 0, steps)
        if not in_time.any():
            raise ValueError(f"no client replies before the deadline of {self.deadline:g} steps: give a longer one")
        return in_time

    def replies(self, key: Any, clients: Any) -> Any:
        """Which of these clients reply in the round of this key; a client's reply does not depend on the others."""
        draw = lambda client: jax.random.uniform(jax.random.fold_in(key, client)) >= self.dropout
        return jax.vmap(draw)(clients)

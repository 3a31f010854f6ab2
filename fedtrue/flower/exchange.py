"""What the server notes of a round: whom it asked, who replied, and how many bytes that took."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedtrue.engine.round import RoundInfo
from fedtrue.flower.replies import GoodReply, added_metrics


@dataclass
class Exchange:
    """One phase of a round."""

    round: int
    number: int  # of the phase
    drawn: Counter[int] = field(default_factory=Counter)  # client → how often it was drawn
    replied: set[int] = field(default_factory=set)
    good: dict[int, GoodReply] = field(default_factory=dict)  # by client
    dropped: int = 0  # not finite
    refused: int = 0  # not what the method takes
    received: bool = False  # whether the server made a step
    norm: float = 0.0  # of its pseudo-gradient
    bytes_up: int = 0
    bytes_down: int = 0

    def draw(self, clients: Sequence[int]) -> None:
        """Sets who takes part."""
        self.drawn = Counter(clients)

    @property
    def missing(self) -> int:
        """Clients that were drawn and sent nothing."""
        return len(self.drawn) - len(self.replied)


class RoundRecord:
    """All phases of a round."""

    def __init__(self, round_index: int):
        self.round, self.exchanges = round_index, list[Exchange]()

    def new(self, number: int) -> Exchange:
        """The next phase; it has the cohort of the one before, until it draws its own."""
        before = self.exchanges[-1].drawn if self.exchanges else Counter[int]()
        self.exchanges.append(Exchange(self.round, number, before))
        return self.exchanges[-1]

    def measured(self) -> dict[str, Any]:
        """What a simulation does not have: refused replies, and the bytes of the messages."""
        total = lambda name: sum(getattr(exchange, name) for exchange in self.exchanges)
        return {"refused": total("refused"), "bytes_up": total("bytes_up"), "bytes_down": total("bytes_down")}

    def info(self, metrics: Sequence[str], phases: int) -> RoundInfo:
        """As of a simulation, with one row. A round that was skipped in an early phase ends with that one."""
        per_phase = lambda name: [len(getattr(each, name)) for each in self._up_to(phases)]
        last, row = self.exchanges[-1], lambda value: np.asarray([value])
        good = [reply for exchange in self.exchanges for reply in exchange.good.values()]
        cohort = list(dict.fromkeys(client for exchange in self.exchanges for client in exchange.drawn))
        return RoundInfo(
            cohort=np.asarray([cohort], int),
            participants=row(per_phase("drawn")),
            steps=row(sum(reply.steps for reply in good)),
            metric_sums=added_metrics(list(last.good.values()), metrics),
            clients=row(len(last.good) if last.received else 0),
            dropped=row(last.dropped),
            pseudo_gradient_norm=row(last.norm),
            idle_steps=row(0),
            missing=row([exchange.missing for exchange in self._up_to(phases)]),
        )

    def _up_to(self, phases: int) -> list[Exchange]:
        return [*self.exchanges, *[self.exchanges[-1]] * (phases - len(self.exchanges))]

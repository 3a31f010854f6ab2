"""What a phase of a round knows of itself."""

from typing import Any, NamedTuple


class Context(NamedTuple):
    """What a phase knows of itself."""

    round: Any  # the round's number
    key: Any  # the phase's own randomness: noise, quantisation; for a sampling, that of its draw
    clients: int  # in the federation
    cohort: int  # clients that this phase asks for; with Poisson sampling their expected number

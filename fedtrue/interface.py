"""`ft.interface.*`: what a method of your own is made of."""

from fedtrue.algorithm.aggregation import WeightedSums, mean, weighted_sum
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.interface import (
    METHOD,
    OBJECTIVE,
    UNIFORM,
    Broadcast,
    Client,
    ClientOutput,
    ClientWork,
    Context,
    Contribution,
    Loss,
    Phase,
    ServerState,
)
from fedtrue.algorithm.method import ServerStep, federated
from fedtrue.algorithm.report import Steps
from fedtrue.algorithm.sampling import ClientSizes, Draw, Sampling, Scores, Uploads
from fedtrue.spec import named

__all__ = [
    "METHOD",
    "OBJECTIVE",
    "UNIFORM",
    "Broadcast",
    "Client",
    "ClientOutput",
    "ClientParts",
    "ClientSizes",
    "ClientWork",
    "Context",
    "Contribution",
    "Draw",
    "LocalRule",
    "Loss",
    "Phase",
    "Sampling",
    "Scores",
    "ServerState",
    "ServerStep",
    "Steps",
    "Uploads",
    "WeightedSums",
    "federated",
    "mean",
    "named",
    "weighted_sum",
]

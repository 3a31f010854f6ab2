"""`ft.interface.*`: what a method of your own is made of."""

from fedtrue.algorithm.aggregation import WeightedSums, mean, weighted_sum
from fedtrue.algorithm.attack import Attack
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.compression import Compression
from fedtrue.algorithm.interface import (
    EXACT,
    METHOD,
    OBJECTIVE,
    SCALE,
    STATE,
    UNIFORM,
    UPDATE,
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
from fedtrue.algorithm.robust import Aggregator
from fedtrue.algorithm.sampling import ClientSizes, Draw, Sampling, Scores, Uploads
from fedtrue.spec import named

__all__ = [
    "EXACT",
    "METHOD",
    "OBJECTIVE",
    "SCALE",
    "STATE",
    "UNIFORM",
    "UPDATE",
    "Aggregator",
    "Attack",
    "Broadcast",
    "Client",
    "ClientOutput",
    "ClientParts",
    "ClientSizes",
    "ClientWork",
    "Compression",
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

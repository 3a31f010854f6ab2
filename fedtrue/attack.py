"""`ft.attack.*`: hostile clients, in a simulation."""

from fedtrue.algorithm.attack import random, scaled

__all__ = ["random", "scaled"]

"""`ft.schedules.*`: learning rates that change from round to round, or within a round."""

from fedtrue.algorithm.schedule import constant, cosine, exponential, inverse, linear, piecewise, warmup

__all__ = ["constant", "cosine", "exponential", "inverse", "linear", "piecewise", "warmup"]

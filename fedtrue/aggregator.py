"""`ft.aggregator.*`: what the server makes of a cohort's contributions."""

from fedtrue.algorithm.robust import krum, mean, median, trimmed_mean

__all__ = ["krum", "mean", "median", "trimmed_mean"]

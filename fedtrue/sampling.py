"""`ft.sampling.*`: who takes part in a round."""

from fedtrue.algorithm.sampling import by_size, cyclic, poisson, uniform
from fedtrue.algorithm.scored_sampling import importance, optimal, power_of_choice

__all__ = ["by_size", "cyclic", "importance", "optimal", "poisson", "power_of_choice", "uniform"]

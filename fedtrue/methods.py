"""`ft.methods.*`: the named methods."""

from fedtrue.algorithm.methods import *  # noqa: F403
from fedtrue.algorithm.methods import __all__ as __all__

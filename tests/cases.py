"""Cases of a law: which of them `make test` runs, and which CI runs besides."""

from collections.abc import Iterable
from typing import Any

import pytest

from fedtrue.algorithm.methods import METHODS
from fedtrue.spec import option_table


def quick(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """All cases; those that are not among `kept` are marked slow, so that they run in `make test-all` only."""
    return [case if case in kept else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def samples_clients(method: str) -> bool:
    """Whether the method of this name is defined for cohorts; else it needs all clients in every round."""
    return "sampling" in option_table(METHODS[method])

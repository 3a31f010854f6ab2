"""Cases of a law: which of them `make test` runs, and which CI runs besides."""

from collections.abc import Iterable
from typing import Any

import pytest


def quick(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """All cases; those that are not among `kept` are marked slow, so that they run in `make test-all` only."""
    return [case if case in kept else pytest.param(case, marks=pytest.mark.slow) for case in cases]

"""How a metric is compared and shown: which direction is better, and whether it is a share of 1."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """What a task declares of a metric, and a run folder keeps."""

    higher_is_better: bool
    percent: bool = False  # a share of 1, shown as percent


LOSS, SHARE = Metric(higher_is_better=False), Metric(higher_is_better=True, percent=True)
SHARES = ("accuracy", "recall", "precision")


def known_metric(name: str) -> Metric | None:
    """Of the names that fedtrue's own tasks use: `loss`, and those that begin with accuracy, recall or precision."""
    if name == "loss":
        return LOSS
    return SHARE if name.startswith(SHARES) else None


def undeclared(names: Iterable[str], declared: Mapping[str, Metric]) -> str | None:
    """The first name that is neither declared nor known."""
    return next((name for name in names if name not in declared and known_metric(name) is None), None)


def recorded_metric(name: str, declared: Mapping[str, Metric]) -> Metric:
    """As declared, else as known; records older than declarations have other names, which count as losses do."""
    return declared.get(name) or known_metric(name) or LOSS


def declarations(
    higher_is_better: Iterable[str] = (), lower_is_better: Iterable[str] = (), percent: Iterable[str] = ()
) -> dict[str, Metric]:
    """Metrics from lists of their names; one in both directions, or in percent without a direction, is refused."""
    higher, lower, shares = (_names(names) for names in (higher_is_better, lower_is_better, percent))
    if both := sorted(higher & lower):
        raise ValueError(f"metric {both[0]!r} is in higher_is_better and in lower_is_better: keep one")
    if alone := sorted(shares - higher - lower):
        raise ValueError(f"metric {alone[0]!r} is in percent only: add it to higher_is_better or lower_is_better")
    return {name: Metric(name in higher, name in shares) for name in sorted(higher | lower)}


def _names(names: Iterable[str]) -> set[str]:
    """A name alone is taken as one name, not as its letters."""
    return {names} if isinstance(names, str) else set(names)

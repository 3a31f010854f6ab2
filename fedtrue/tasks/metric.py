"""How a metric is compared and shown: whether higher is better, and whether it is a fraction of 1."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """What a task declares about a metric; stored in the run folder too."""

    higher_is_better: bool
    percent: bool = False  # a fraction of 1, shown as a percentage


LOSS_METRIC, FRACTION_METRIC = Metric(higher_is_better=False), Metric(higher_is_better=True, percent=True)
FRACTION_PREFIXES = ("accuracy", "recall", "precision")


def known_metric(name: str) -> Metric | None:
    """The metric of a name that needs no declaration: `loss`, or one that starts with accuracy, recall or precision."""
    if name == "loss":
        return LOSS_METRIC
    return FRACTION_METRIC if name.startswith(FRACTION_PREFIXES) else None


def first_undeclared(names: Iterable[str], declared: Mapping[str, Metric]) -> str | None:
    """The first name that is neither declared nor known."""
    return next((name for name in names if name not in declared and known_metric(name) is None), None)


def recorded_metric(name: str, declared: Mapping[str, Metric]) -> Metric:
    """As declared, else as known. Old records have no declared_metrics: their other metrics are treated like losses."""
    return declared.get(name) or known_metric(name) or LOSS_METRIC


def declared_metrics(
    higher_is_better: Iterable[str] = (), lower_is_better: Iterable[str] = (), percent: Iterable[str] = ()
) -> dict[str, Metric]:
    """Metrics from lists of names; a name with both directions, or in percent only, raises a ValueError."""
    higher, lower, fractions = (_names(names) for names in (higher_is_better, lower_is_better, percent))
    if both := sorted(higher & lower):
        raise ValueError(f"metric {both[0]!r} is in higher_is_better and in lower_is_better: remove it from one")
    if alone := sorted(fractions - higher - lower):
        raise ValueError(f"metric {alone[0]!r} is in percent only: add it to higher_is_better or lower_is_better")
    return {name: Metric(name in higher, name in fractions) for name in sorted(higher | lower)}


def _names(names: Iterable[str]) -> set[str]:
    """The set of names; a single string is one name, not a list of letters."""
    return {names} if isinstance(names, str) else set(names)

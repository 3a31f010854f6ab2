"""Numbers as text, the same in tables, heat maps, pictures and on the page."""

import math
from collections.abc import Callable

from fedtrue.reports.differences import Difference
from fedtrue.reports.measures import MeanOfLast, Measure, SeedMean

BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def value_text(value: SeedMean | MeanOfLast | None, measure: Measure) -> str:
    """'57.68 ± 0.12' for fractions of 1, in percent; '1.389 ± 0.012' for other numbers."""
    if value is None:
        return "–"
    if measure.percent:
        return with_deviation(value, lambda number: f"{100 * number:.2f}")
    return with_deviation(value, lambda number: f"{number:.4g}", lambda number: f"{number:.2g}")


def difference_text(value: Difference | None, measure: Measure) -> str:
    """'+0.35 ± 1.91' in points for fractions of 1; '+0.35' for a single pair."""
    if value is None:
        return "–"
    factor, form = (100, ".2f") if measure.percent else (1, ".3g")
    mean = _with_minus(f"{factor * value.value:+{form}}")
    return mean if value.interval is None else f"{mean} ± {factor * value.interval:{form.replace('3g', '2g')}}"


def with_deviation(
    mean: SeedMean | MeanOfLast,
    format_value: Callable[[float], str],
    format_deviation: Callable[[float], str] | None = None,
) -> str:
    """The mean, and its deviation if there is one."""
    if mean.deviation is None:
        return format_value(mean.value)
    return f"{format_value(mean.value)} ± {(format_deviation or format_value)(mean.deviation)}"


def fixed_text(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def signed_text(value: float | None) -> str:
    return "–" if value is None else _with_minus(f"{value:+.2f}")


def _with_minus(text: str) -> str:
    """With a minus sign instead of a hyphen in front; an exponent keeps its own."""
    return f"−{text[1:]}" if text.startswith("-") else text


def byte_unit(count: float) -> tuple[float, str]:
    """(1e6, 'MB') for a few million bytes: powers of 1,000."""
    power = min(int(math.log10(max(count, 1)) / 3 + 1e-9), len(BYTE_UNITS) - 1)
    return 1000.0**power, BYTE_UNITS[power]


def bytes_text(count: float, none: str = "–") -> str:
    """'1.23 MB'; `none` if there are no bytes."""
    if count <= 0:
        return none
    factor, unit = byte_unit(count)
    return f"{count / factor:.3g} {unit}"


def duration_text(seconds: float) -> str:
    """'1.23 s', '1 min 0 s', '1 h 1 min'."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def plural(count: int, noun: str) -> str:
    """'1 run', '2 runs'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

"""Colours and dashes of the page and the pictures, distinguishable for colour-blind readers and in print."""

from typing import Any

COLOURS = ("#4477AA", "#CC3311", "#009988", "#EE7733", "#AA3377", "#33BBEE", "#997700", "#888888")  # Paul Tol's
DARK_PAGE_COLOURS = ("#77AADD", "#EE8866", "#44BB99", "#FFAABB", "#CC99CC", "#99DDFF", "#DDCC77", "#BBBBBB")
DASHES = ("solid", "dash", "dot", "dashdot")  # Plotly's names
_MATPLOTLIB_DASHES: tuple[Any, ...] = ("solid", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))  # the same dashes


def line_style(index: int) -> Any:
    """The Matplotlib dash of curve `index`, as on the page: curves of the same colour have different dashes."""
    return _MATPLOTLIB_DASHES[(index + index // len(COLOURS)) % len(_MATPLOTLIB_DASHES)]

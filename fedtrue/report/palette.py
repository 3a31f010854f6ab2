"""One look for the page and the pictures: colours that colour-blind readers can tell apart, and dashes for print."""

from typing import Any

COLOURS = ("#4477AA", "#CC3311", "#009988", "#EE7733", "#AA3377", "#33BBEE", "#997700", "#888888")  # Paul Tol's
LIGHTER = ("#77AADD", "#EE8866", "#44BB99", "#FFAABB", "#CC99CC", "#99DDFF", "#DDCC77", "#BBBBBB")  # on a dark page
DASHES = ("solid", "dash", "dot", "dashdot")
_LINES: tuple[Any, ...] = ("solid", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))  # the same in matplotlib's words


def line_style(place: int) -> Any:
    """Neighbours differ in dash and colour; where the colours begin again the dashes are others. As on the page."""
    return _LINES[(place + place // len(COLOURS)) % len(_LINES)]

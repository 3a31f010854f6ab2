"""A figure that is saved as PNG, PDF or SVG; equal drawings give equal bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Type 42 fonts and text as text, because journals refuse Type 3 fonts; no dates and fixed ids, so that bytes repeat
STYLE: Any = {
    "font.size": 11,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedtrue",
    "hatch.linewidth": 1.2,
}
FORMATS = ("png", "pdf", "svg")
METADATA_WITHOUT_DATE = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def check_format(flag: str, path: Path | None) -> None:
    """Refuses a file that cannot be drawn, before the work for it begins."""
    if path is not None and path.suffix[1:] not in FORMATS:
        raise ValueError(f"{flag} {path}: the name must end with .{', .'.join(FORMATS[:-1])} or .{FORMATS[-1]}")


@contextmanager
def picture(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """A Matplotlib figure that is saved to `path` when the block ends."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=size, facecolor="white")
        yield figure
        suffix = Path(path).suffix[1:]
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, bbox_inches="tight", metadata=METADATA_WITHOUT_DATE.get(suffix))

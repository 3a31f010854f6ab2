"""The numbers of a round under the names that loggers show: `train/loss`, `test/accuracy`."""

from fedtrue.runner.records import Line


def logged_scalars(line: Line) -> dict[str, float]:
    """All numbers of a line except its round, which is the step of the logger."""
    splits = {"train": line, **line.get("evaluation", {})}
    return {
        f"{split}/{name}": value
        for split, metrics in splits.items()
        for name, value in metrics.items()
        if isinstance(value, int | float) and name != "round"
    }


def missing_package(what: str, extra: str) -> ValueError:
    """The error for a logger whose package is not installed."""
    return ValueError(f"{what} needs a package: pip install 'fedtrue[{extra}]'")

"""A picture of who holds what: the classes of every client's examples, and how many examples it has."""

from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.data.client_data import ClientData
from fedtrue.reports.canvas import picture
from fedtrue.reports.palette import COLOURS

LABEL_COLUMNS = ("y", "label")
MAX_BARS = 40  # clients drawn as bars; more are columns of a heat map
MAX_COLOURS = 20  # classes with a colour of their own; more are rows of a heat map
MAX_CLASS_TICKS = 40
LOG_SCALE_FROM = 20  # times the median
HATCHES = ("", "///", "...")


def draw_holdings(data: ClientData, path: Path, title: str) -> Path:
    """Draw the classes of every client.

    Up to MAX_BARS clients and MAX_COLOURS classes are stacked bars in the order of the clients. More are a heat map,
    one column per client and one row per class, the clients sorted by their most frequent class. Data without classes
    is drawn by the number of examples.

    Args:
        data: with a column `y` or `label` of classes, or without.
        path: .png, .pdf or .svg.
        title: of the picture.

    Returns:
        The path.
    """
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise ValueError(f"{path} has no known ending: give a .png, .pdf or .svg file")
    counts = class_counts(data)
    with picture(path, (10, 5)) as figure:
        if counts is None:
            _draw_sizes(figure.add_subplot(), data.sizes, title)
        elif len(data) <= MAX_BARS and counts.shape[1] <= MAX_COLOURS:
            _draw_bars(figure.add_subplot(), data, counts, title)
        else:
            _draw_heat_map(figure, data, counts, title)
    return path


def class_counts(data: ClientData) -> np.ndarray | None:
    """The number of examples of each client (row) and class (column); None if the data has no classes."""
    name = next((name for name in LABEL_COLUMNS if name in data.columns), None)
    if name is None or data.columns[name].dtype.kind not in "iu":
        return None
    labels = data.values(name).astype(np.int64)
    owners = np.repeat(np.arange(len(data)), data.sizes)
    classes = max(int(labels.max()) + 1, len(data.classes or ()))
    return np.bincount(owners * classes + labels, minlength=len(data) * classes).reshape(len(data), classes)


def _class_names(data: ClientData, classes: int) -> list[str]:
    return list(data.classes) if data.classes is not None else [str(label) for label in range(classes)]


def _draw_bars(axes: Any, data: ClientData, counts: np.ndarray, title: str) -> None:
    positions, bottoms = np.arange(len(data)), np.zeros(len(data))
    for label, name in enumerate(_class_names(data, counts.shape[1])):
        hatch = HATCHES[label // len(COLOURS) % len(HATCHES)]
        colour = COLOURS[label % len(COLOURS)]
        style = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
        axes.bar(positions, counts[:, label], bottom=bottoms, label=name, **style)
        bottoms += counts[:, label]
    axes.set_xticks(positions, list(data.client_ids), rotation=90 if len(data) > 8 else 0)
    axes.set_xlim(-0.6, len(data) - 0.4)
    axes.set_ylabel("examples")
    axes.set_title(_title(title, data.sizes))
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], title="class", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_heat_map(figure: Any, data: ClientData, counts: np.ndarray, title: str) -> None:
    """Shares of the classes above, examples per client below, the same client in the same column."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    style = {"aspect": "auto", "origin": "lower", "interpolation": "nearest", "cmap": "Blues", "vmin": 0}
    image = upper.imshow(shares[order].T, **style)
    names = _class_names(data, counts.shape[1])
    step = -(-len(names) // MAX_CLASS_TICKS)
    upper.set_yticks(range(0, len(names), step), names[::step], fontsize=8 if len(names) > 15 else None)
    upper.set_ylabel("class")
    upper.set_title(_title(title, data.sizes))
    figure.colorbar(image, ax=[upper, lower], label="share of the client's examples", pad=0.02)
    _draw_stairs(lower, counts.sum(axis=1)[order])
    lower.set_xlabel("clients, sorted by their most frequent class")


def _draw_sizes(axes: Any, sizes: np.ndarray, title: str) -> None:
    _draw_stairs(axes, np.sort(sizes)[::-1])
    axes.set_xlabel("clients, the largest first")
    axes.set_title(_title(title, sizes))


def _draw_stairs(axes: Any, sizes: np.ndarray) -> None:
    """Examples per client; on a logarithmic axis if a few clients would hide all others."""
    axes.stairs(sizes, np.arange(len(sizes) + 1) - 0.5, fill=True, color=COLOURS[0])
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    if sizes.max() > LOG_SCALE_FROM * np.median(sizes):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_ylabel("examples")
    axes.spines[["top", "right"]].set_visible(False)


def _title(title: str, sizes: np.ndarray) -> str:
    return f"{title}: {len(sizes):,} clients, {int(sizes.sum()):,} examples"

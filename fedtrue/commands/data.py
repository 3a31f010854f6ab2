"""`fedtrue data`: list, get, show; import is in importing.py."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from fedtrue.algorithm.checks import check_int
from fedtrue.commands.answer import Answer, printer, table
from fedtrue.commands.training import apply_settings
from fedtrue.data import plays
from fedtrue.data.client_data import ClientData
from fedtrue.data.download import download
from fedtrue.data.imports import DamagedDataSet, find_imported, imported_if_exists, imported_names
from fedtrue.data.locations import PUBLISHED, data_folders, data_root, size_text
from fedtrue.names import look_up
from fedtrue.reports.holdings import draw_holdings
from fedtrue.runner.build import load_task
from fedtrue.runner.settings import RunConfig, check_names
from fedtrue.tasks.registry import TASKS
from fedtrue.tasks.task import Task

SHOWN_META = ("format", "kind", "roles", "columns", "partition", "test_fraction", "sources")  # of an imported data set
IMAGE_COLUMNS, IMAGE_ROWS = 8, 4  # of the picture that `show` draws of image data
A_PICTURE = "a picture"  # what stands for an image among the sample texts


def list_data(options: Namespace) -> Answer:
    """Every task with its data sets and where they are on this machine."""
    data_sets = [_data_set_record(task, name) for task, entry in TASKS.items() for name in entry.data_sets or ("",)]
    data_sets += [_imported_record(name) for name in imported_names()]
    rows = [
        [record["task"], record["data"], record["size"] or "–", _source_word(record), record["here"] or "–"]
        for record in data_sets
    ]
    notes = [
        "download: fedtrue data get DATA-SET",
        "import: fedtrue data import DATA-SET FILE, also for data of your own",
        "folders searched: " + ", ".join(str(folder) for folder in data_folders()),
    ]
    return Answer(data_sets, printer(table("Data", ["task", "data set", "size", "source", "found in"], rows), *notes))


def _source_word(record: Mapping[str, Any]) -> str:
    """The command in `from` as one word, which keeps the table narrow; the notes below the table explain it."""
    words = {"fedtrue data get": "download", "fedtrue data import": "import"}
    return next((word for command, word in words.items() if record["from"].startswith(command)), record["from"] or "–")


def _data_set_record(task: str, name: str) -> dict[str, Any]:
    """What `fedtrue data list` tells of one data set of a task; `here` is its folder, None if it does not exist."""
    if not name:
        return {"task": task, "data": "none needed", "size": "", "from": "", "here": "always"}
    published = PUBLISHED.get(name)
    if published:
        source = f"fedtrue data get {name}"
    else:
        source = f"fedtrue data import {name} FILE" if name == "stackexchange" else "your file"
    folders = [root / name for root in data_folders()]
    return {
        "task": task,
        "data": name,
        "size": size_text(published.size_bytes) if published else "unknown",
        "from": source,
        "here": next((str(folder) for folder in folders if folder.is_dir() and any(folder.iterdir())), None),
    }


def _imported_record(name: str) -> dict[str, Any]:
    try:
        found = find_imported(name)
    except DamagedDataSet as problem:
        return {"task": name, "data": name, "size": "", "from": "", "here": str(problem)}
    size = sum(found.meta["files"].values())
    origin = f"your {found.meta['format']}"
    return {"task": name, "data": name, "size": size_text(size), "from": origin, "here": str(found.folder)}


def get(options: Namespace) -> Answer:
    """Downloads the missing files of a data set; existing files are checked and kept."""
    data_set = look_up("data set", PUBLISHED, options.name)
    folder = data_root() / options.name
    if options.name == "plays":
        with _download_bar("plays") as bar:
            paths = [plays.fetch(folder, bar)]
    else:
        paths = []
        for file in data_set.files:
            with _download_bar(file.name) as bar:
                paths.append(download(file.urls, folder / file.name, file.sha256, file.size_bytes, bar))
    answer = {"name": options.name, "files": [str(path) for path in paths], "licence": data_set.licence}
    return Answer(answer, printer(*map(str, paths), f"licence: {data_set.licence}"))


@contextmanager
def _download_bar(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar with bytes, speed and time left; hidden if stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        line = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(line, completed=done, total=total)


def show(options: Namespace) -> Answer:
    """Statistics of every split, and a few examples."""
    check_int("--examples", options.examples)
    config = apply_settings(RunConfig(options.name), options.settings)
    check_names(config)
    task = load_task(config)
    splits = {"train": task.train, "validation": task.validation, "test": task.test, "unseen": task.unseen}
    statistics = {name: asdict(data.statistics()) for name, data in splits.items() if data is not None}
    examples = [_example(task.train, i) for i in range(min(options.examples, len(task.train)))]
    texts = [_example_text(task, example) for example in examples]
    parts: list[Any] = [_statistics_table(options.name, statistics), *([f"data: {task.source}"] if task.source else [])]
    answer = {**statistics, "source": task.source, "sample": texts}
    if (found := imported_if_exists(options.name)) is not None:
        answer["imported"] = {key: found.meta[key] for key in SHOWN_META}
    if task.train.classes is not None:
        answer["classes"] = list(task.train.classes)
    if options.picture is not None:
        answer["holdings"] = str(draw_holdings(task.train, options.picture, options.name))
        parts.append(f"who holds what: {answer['holdings']}")
    if options.out is not None:
        answer["picture"] = str(_draw_images(_images_of(task, options.name), options.out))
        parts.append(f"picture: {answer['picture']}")
    elif A_PICTURE in texts:
        parts.append("the examples are images: -o FILE.png draws them")
    else:
        parts += [f"\n[{task.train.client_ids[i]}]\n{text}" for i, text in enumerate(texts)]
    return Answer(answer, lambda: Console(soft_wrap=True, markup=False, highlight=False).print(*parts, sep="\n"))


def _statistics_table(name: str, statistics: Mapping[str, Mapping[str, Any]]) -> Any:
    keys = next(iter(statistics.values()))
    rows = [[key.replace("_", " "), *(split[key] for split in statistics.values())] for key in keys]
    return table(f"{name}: clients, examples, and examples per client", ["", *statistics], rows)


def _example(data: ClientData, client: int, index: int = 0) -> dict[str, Any]:
    row = int(data.starts[client] + index % data.sizes[client])
    return {name: np.asarray(column[row]) for name, column in data.columns.items()}


def _examples_over_clients(data: ClientData) -> list[dict[str, Any]]:
    """One example per client, from clients spread evenly over the federation."""
    count = min(IMAGE_COLUMNS * IMAGE_ROWS, len(data))
    clients = np.linspace(0, len(data) - 1, count).astype(int)
    return [_example(data, int(client), index) for index, client in enumerate(clients)]


def _images_of(task: Task, name: str) -> list[np.ndarray]:
    images = [] if task.render is None else [task.render(example) for example in _examples_over_clients(task.train)]
    if not all(isinstance(image, np.ndarray) for image in images) or not images:
        raise ValueError(f"{name} has no images to draw: leave out -o")
    return [np.asarray(image) for image in images]


def _example_text(task: Task, example: Mapping[str, Any]) -> str:
    rendered = task.render(example) if task.render else str(dict(example))
    return rendered if isinstance(rendered, str) else A_PICTURE


def _draw_images(images: list[np.ndarray], path: Path) -> Path:
    import matplotlib.pyplot as plt

    rows = -(-len(images) // IMAGE_COLUMNS)
    figure, grid = plt.subplots(rows, IMAGE_COLUMNS, figsize=(IMAGE_COLUMNS, rows), squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for axes, image in zip(grid.flat, images):
        axes.imshow(np.squeeze(image), cmap="gray_r" if np.squeeze(image).ndim == 2 else None)
    figure.savefig(path, dpi=100, bbox_inches="tight")
    plt.close(figure)
    return path

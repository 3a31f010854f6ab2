"""`fedtrue data`: list, get, import, show."""

import shutil
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from fedtrue.commands.answer import Answer, printed, table
from fedtrue.commands.training import apply_settings
from fedtrue.data import plays, stackexchange
from fedtrue.data.client_data import ClientData
from fedtrue.data.download import download
from fedtrue.data.locations import PUBLISHED, data_folders, data_root, size_text
from fedtrue.names import look_up
from fedtrue.runner.build import load_task
from fedtrue.runner.settings import RunConfig, check_names
from fedtrue.tasks.registry import TASKS
from fedtrue.tasks.task import Task

_GET = "fedtrue data get "
GRID_COLUMNS = 8  # pictures side by side


def list_data(options: Namespace) -> Answer:
    """Every task, the data sets it looks for, and whether they are here."""
    rows = [_row(task, name) for task, entry in TASKS.items() for name in entry.data_sets or ("",)]
    shown = [[row["task"], row["data"], row["size"], row["from"], row["here"] or "—"] for row in rows]
    columns = ["task", "data set", "size", "how to get it", "here"]
    looked_in = "looked in: " + ", ".join(str(place) for place in data_folders())
    return Answer(rows, printed(table("Data", columns, shown), looked_in))


def _row(task: str, name: str) -> dict[str, Any]:
    if not name:
        return {"task": task, "data": "none needed", "size": "", "from": "", "here": "always"}
    published = PUBLISHED.get(name)
    here = next(
        (str(root / name) for root in data_folders() if (root / name).is_dir() and any((root / name).iterdir())), None
    )
    return {
        "task": task,
        "data": name,
        "size": size_text(published.size_bytes) if published else "as you have it",
        "from": f"fedtrue data get {name}"
        if published
        else f"fedtrue data import {name} FILE"
        if name == "stackexchange"
        else "a file of yours",
        "here": here,
    }


def get(options: Namespace) -> Answer:
    """Downloads what is missing of a data set; what is there already is checked and kept."""
    data_set = look_up("data set", PUBLISHED, options.name)
    folder = data_root() / options.name
    if options.name == "plays":
        with _Bar("plays") as bar:
            paths = [plays.fetch(folder, bar)]
    else:
        paths = []
        for file in data_set.files:
            with _Bar(file.name) as bar:
                paths.append(download(file.urls, folder / file.name, file.sha256, file.size_bytes, bar))
    said = {"name": options.name, "files": [str(path) for path in paths], "licence": data_set.licence}
    return Answer(said, printed(*[f"{path}" for path in paths], f"licence: {data_set.licence}"))


class _Bar:
    """Bytes done, speed, time left; silent when not a terminal."""

    def __init__(self, name: str):
        console = Console(stderr=True)
        columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self.line = self.bar.add_task(name, total=None)

    def __enter__(self) -> Callable[[int, int | None], None]:
        self.bar.start()
        return lambda done, total: self.bar.update(self.line, completed=done, total=total)

    def __exit__(self, *exception: Any) -> None:
        self.bar.stop()


def import_file(options: Namespace) -> Answer:
    """Checks that the file is what it is said to be, then keeps a copy where tasks look for it."""
    file: Path = options.file
    if not file.is_file():
        raise ValueError(f"{file} is not there")
    counts = stackexchange.Counts()
    users = {user for user, _ in stackexchange.read(file, counts)}
    if not users:
        raise ValueError(f"{file} has no post with an owner: is it a Posts.xml of a Stack Exchange dump?")
    site = options.site or _site_name(file)
    suffix = "".join(s for s in file.suffixes if s in (".xml", ".xz", ".gz", ".bz2", ".7z"))
    target = data_root() / "stackexchange" / f"{site}.Posts{suffix if suffix.startswith('.xml') else '.xml' + suffix}"
    if target.exists() and not file.samefile(target):
        raise ValueError(f"{target} is there already: remove it first, or give another --site")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".part")
        shutil.copyfile(file, partial)
        partial.rename(target)
    said = {"site": site, "file": str(target), "users": len(users), **asdict(counts)}
    rows = [[name, value] for name, value in said.items()]
    run = f"fedtrue run stackexchange --set task_options.site={site}"
    return Answer(said, printed(table("Imported", ["", "value"], rows), f"now: {run}"))


def _site_name(file: Path) -> str:
    """'beer' from beer.Posts.xml.xz or beer.stackexchange.com/Posts.xml."""
    first = file.name.split(".")[0]
    return first if first.lower() != "posts" else file.resolve().parent.name.split(".")[0]


def show(options: Namespace) -> Answer:
    """Statistics of every split, and a few examples."""
    config = apply_settings(RunConfig(options.name), options.settings)
    check_names(config)
    task = load_task(config)
    splits = {"train": task.train, "validation": task.validation, "test": task.test}
    statistics = {name: asdict(data.statistics()) for name, data in splits.items() if data is not None}
    examples = [_example(task.train, i) for i in range(min(options.examples, len(task.train)))]
    texts = [_text(task, example) for example in examples]
    pictures = (
        [] if task.render is None else [task.render(example) for example in _spread(task.train, 4 * GRID_COLUMNS)]
    )
    parts: list[Any] = [_statistics_table(options.name, statistics), *([f"data: {task.source}"] if task.source else [])]
    answer = {**statistics, "source": task.source, "sample": texts}
    if pictures and isinstance(pictures[0], np.ndarray):
        answer["picture"] = str(
            _draw_grid([np.asarray(p) for p in pictures], options.out or Path(f"{options.name}.png"))
        )
        parts.append(f"picture: {answer['picture']}")
    else:
        parts += [f"\n[{task.train.client_ids[i]}]\n{text}" for i, text in enumerate(texts)]
    return Answer(answer, lambda: Console(soft_wrap=True, markup=False, highlight=False).print(*parts, sep="\n"))


def _statistics_table(name: str, statistics: Mapping[str, Mapping[str, Any]]) -> Any:
    names = next(iter(statistics.values()))
    rows = [[entry.replace("_", " "), *(split[entry] for split in statistics.values())] for entry in names]
    return table(f"{name}: clients, examples, and examples a client", ["", *statistics], rows)


def _example(data: ClientData, client: int, place: int = 0) -> dict[str, Any]:
    row = int(data.starts[client] + place % data.sizes[client])
    return {name: np.asarray(column[row]) for name, column in data.columns.items()}


def _spread(data: ClientData, count: int) -> list[dict[str, Any]]:
    """An example each of clients from all over the list."""
    clients = np.linspace(0, len(data) - 1, min(count, len(data))).astype(int)
    return [_example(data, int(client), place) for place, client in enumerate(clients)]


def _text(task: Task, example: Mapping[str, Any]) -> str:
    rendered = task.render(example) if task.render else str(dict(example))
    return rendered if isinstance(rendered, str) else "a picture"


def _draw_grid(pictures: list[np.ndarray], path: Path) -> Path:
    import matplotlib.pyplot as plt

    rows = -(-len(pictures) // GRID_COLUMNS)
    figure, axes = plt.subplots(rows, GRID_COLUMNS, figsize=(GRID_COLUMNS, rows), squeeze=False)
    for place in axes.flat:
        place.axis("off")
    for place, picture in zip(axes.flat, pictures):
        place.imshow(np.squeeze(picture), cmap="gray_r" if np.squeeze(picture).ndim == 2 else None)
    figure.savefig(path, dpi=100, bbox_inches="tight")
    plt.close(figure)
    return path

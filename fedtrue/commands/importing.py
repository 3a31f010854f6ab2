"""`fedtrue data import`."""

import shutil
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn

from fedtrue.commands.answer import Answer, printer, table
from fedtrue.data import stackexchange
from fedtrue.data.import_stream import ImportPlan, Partition
from fedtrue.data.imports import Imported, import_source
from fedtrue.data.locations import PUBLISHED, data_root
from fedtrue.data.sources import guess_format, open_source
from fedtrue.tasks.imported import MODELS
from fedtrue.tasks.registry import TASKS

DUMP_SUFFIXES = (".xml", ".xz", ".gz", ".bz2", ".7z")
DUMP = "stackexchange"
TEST_FRACTION = 0.1
PARTITION_OPTIONS = ("alpha", "shards_per_client", "exponent", "alpha_coarse", "alpha_fine", "examples_per_client")
SHOWN_CLASSES = 12


def import_data(options: Namespace) -> Answer:
    """Converts files to a data set that `fedtrue run NAME` finds; nothing is changed if it fails."""
    if options.name == DUMP and options.format is None:
        return _import_dump(options)
    if options.name in {*TASKS, *PUBLISHED}:
        raise ValueError(f"{options.name!r} is the name of a task: give your data set another name")
    if options.site is not None:
        raise ValueError("--site is for `fedtrue data import stackexchange FILE` only: leave it out")
    file_format = options.format or guess_format(_existing(options.files[0]))
    source = open_source(options.files, file_format)
    test = None if options.test is None else open_source(options.test, file_format)
    has_test = test is not None or "test" in source.splits
    fraction = options.test_fraction if options.test_fraction is not None else 0.0 if has_test else TEST_FRACTION
    roles = source.roles_with(
        client=options.client,
        label=options.label,
        image=options.image,
        text=options.text,
        tags=options.tags,
        features=_names(options.features),
        ignore=_names(options.ignore),
        image_shape=_shape(options.image_shape),
        words=options.words,
    )
    plan = ImportPlan(roles, file_format, _partition(options), fraction, options.seed)
    with _progress_bar() as progress:
        found = import_source(options.name, source, test, plan, options.replace, progress)
    return _answer(found)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise ValueError(f"{path} does not exist: check the path")
    return path


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _shape(text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(number) for number in text.replace("x", ",").split(","))
    except ValueError:
        raise ValueError(f"--image-shape takes HEIGHT,WIDTH or HEIGHT,WIDTH,CHANNELS, not {text!r}") from None


def _partition(options: Namespace) -> Partition | None:
    given = {name: getattr(options, name) for name in PARTITION_OPTIONS if getattr(options, name) is not None}
    if options.partition is None:
        alone = [*(["clients"] if options.clients is not None else []), *given]
        if alone:
            raise ValueError(f"--{alone[0].replace('_', '-')} belongs to a partition: give --partition NAME, too")
        return None
    if options.clients is None:
        raise ValueError(f"--partition {options.partition} needs a number of clients: --clients 100")
    return Partition(options.partition, options.clients, given, options.coarse)


@contextmanager
def _progress_bar() -> Iterator[Callable[[str, int], None]]:
    """Shows how many rows have been read and written; hidden if stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), TextColumn("{task.completed:,.0f} rows"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        line = bar.add_task("reading", total=None)
        yield lambda stage, rows: bar.update(line, description=stage, completed=rows)


def _answer(found: Imported) -> Answer:
    meta = found.meta
    models = list(MODELS[meta["kind"]])
    classes = found.splits()["train"].classes
    answer: dict[str, Any] = {
        "name": found.name,
        "folder": str(found.folder),
        **{key: meta[key] for key in ("format", "kind", "columns", "classes", "partition", "test_fraction")},
        "splits": found.counts,
        "class_names": None if classes is None else list(classes),
        "models": models,
    }
    rows = [
        ["kind", meta["kind"].replace("_", " ")],
        ["columns", ", ".join(f"{name} {_column_text(kind)}" for name, kind in meta["columns"].items())],
        *([["classes", _class_text(meta["classes"], classes)]] if meta["classes"] else []),
        *([split, _count_text(counts)] for split, counts in found.counts.items()),
        ["folder", str(found.folder)],
    ]
    notes = [
        f"train on it: fedtrue run {found.name} --model {' | '.join(models)}",
        "learning rates that you do not give are values to start from: tune them with fedtrue sweep",
    ]
    return Answer(answer, printer(table(f"Imported {found.name}", ["", "value"], rows), *notes))


def _count_text(counts: Mapping[str, int]) -> str:
    clients = "1 client" if counts["clients"] == 1 else f"{counts['clients']:,} clients"
    return f"{clients}, {counts['examples']:,} examples"


def _column_text(kind: dict[str, Any]) -> str:
    shape = "varying length" if kind["shape"] is None else "×".join(map(str, kind["shape"])) or "number"
    return f"({shape}, {kind['dtype'].lstrip('<|=>')})"


def _class_text(count: int, names: Any) -> str:
    if names is None:
        return f"{count}, numbered from 0"
    shown = ", ".join(names[:SHOWN_CLASSES])
    return f"{count}: {shown}{', …' if count > SHOWN_CLASSES else ''}"


def _import_dump(options: Namespace) -> Answer:
    """Checks that the file is a Stack Exchange dump, then copies it to where tasks look for it."""
    if len(options.files) > 1:
        raise ValueError(f"a dump is one file, not {len(options.files)}: import one site after another")
    file: Path = options.files[0]
    if not file.is_file():
        raise ValueError(f"{file} does not exist: give the path of a Posts.xml from a Stack Exchange dump")
    counts = stackexchange.Counts()
    users = {user for user, _ in stackexchange.read(file, counts)}
    if not users:
        raise ValueError(f"{file} has no post with an owner: give the Posts.xml of a Stack Exchange dump")
    site = options.site or _site_name(file)
    suffix = "".join(s for s in file.suffixes if s in DUMP_SUFFIXES)
    target = data_root() / "stackexchange" / f"{site}.Posts{suffix if suffix.startswith('.xml') else '.xml' + suffix}"
    if target.exists() and not file.samefile(target):
        raise ValueError(f"{target} already exists: remove it, or give another --site")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".part")
        shutil.copyfile(file, partial)
        partial.rename(target)
    answer = {"site": site, "file": str(target), "users": len(users), **asdict(counts)}
    rows = [[name, value] for name, value in answer.items()]
    next_command = f"fedtrue run stackexchange --set task_options.site={site}"
    return Answer(answer, printer(table("Imported", ["", "value"], rows), f"train on it: {next_command}"))


def _site_name(file: Path) -> str:
    """'beer' for beer.Posts.xml.xz and for beer.stackexchange.com/Posts.xml."""
    first = file.name.split(".")[0]
    return first if first.lower() != "posts" else file.resolve().parent.name.split(".")[0]

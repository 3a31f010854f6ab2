"""Tasks in a user's own Python file: `my_file.py:task` names a Task, or a function that returns one."""

import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fedtrue.names import suggestion
from fedtrue.spec import option_table, plain, with_spec
from fedtrue.tasks.task import Task

DEFAULT_NAME = "task"


class TaskFile(NamedTuple):
    """Where a task is defined."""

    path: Path  # absolute
    name: str  # of the Task, or of the function that returns one

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"


def task_file(reference: str) -> TaskFile | None:
    """The file and name of `my_file.py:task`, or of `my_file.py`; None for the name of a task.

    >>> task_file("my_file.py:small").name, task_file("shakespeare")
    ('small', None)
    """
    match = re.fullmatch(r"(.+\.py)(?::(\w+))?", reference)
    return TaskFile(Path(match[1]).expanduser().absolute(), match[2] or DEFAULT_NAME) if match else None


def short_name(reference: str) -> str:
    """The reference without its folders: 'my_file.py:task'; the name of another task is unchanged."""
    file = task_file(reference)
    return f"{file.path.name}:{file.name}" if file else reference


def file_fingerprint(reference: str) -> str | None:
    """The first 16 digits of the sha256 of a task's file; None for a task without one."""
    file = task_file(reference)
    return hashlib.sha256(_content(file)).hexdigest()[:16] if file else None


def from_file(reference: str, **options: Any) -> Task:
    """A task that is defined in a Python file.

    Args:
        reference: "FILE.py:NAME"; without NAME, `task`. NAME is a `Task`, or a function that returns one.
        **options: arguments of the function.

    Returns:
        The task. Its spec names the file, so that `fedtrue resume` and `fedtrue diagnose` can load it again.

    >>> import pathlib, tempfile, fedtrue as ft
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "my_file.py"
    >>> _ = file.write_text("import fedtrue as ft\\ndef task(noise=0.0): return ft.tasks.quadratic(noise=noise)")
    >>> len(ft.tasks.from_file(f"{file}:task", noise=0.1).train)
    2
    """
    file = task_file(reference)
    if file is None:
        raise ValueError(f"{reference!r} does not name a task in a file: give FILE.py:NAME")
    with _importable(file.path.parent):
        task = own_factory(file)(**_checked(file, options))
    if not isinstance(task, Task):
        raise ValueError(f"{file} returned {type(task).__name__}, not a Task: return ft.tasks.from_arrays(…)")
    return with_spec(replace(task), {"name": str(file), **{key: plain(value) for key, value in options.items()}})


def own_factory(file: TaskFile) -> Callable[..., Task]:
    """The function that builds the task of a file; one without arguments if the file has the Task itself."""
    module = _load_module(file.path, _content(file))
    if not hasattr(module, file.name):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise ValueError(f"{file.path} has no {file.name!r}{suggestion(file.name, public)}: give {file.path.name}:NAME")
    found = getattr(module, file.name)
    if isinstance(found, Task):
        return lambda: found
    if not callable(found):
        raise ValueError(f"{file} is {type(found).__name__}: it must be a Task, or a function that returns one")
    return found


def _checked(file: TaskFile, options: dict[str, Any]) -> dict[str, Any]:
    valid = option_table(own_factory(file))
    if not any(entry.kind is entry.VAR_KEYWORD for entry in valid.values()):
        for option in options:
            if option not in valid:
                near = suggestion(option, valid)
                raise ValueError(f"{file.name} has no {option}{near}: it takes {', '.join(valid) or 'no options'}")
    for name, entry in valid.items():
        can_be_left_out = entry.default is not entry.empty or entry.kind in (entry.VAR_KEYWORD, entry.VAR_POSITIONAL)
        if name not in options and not can_be_left_out:
            cure = f"give --set task_options.{name}=VALUE (in Python, from_file(FILE, {name}=VALUE)), or a default"
            raise ValueError(f"{short_name(str(file))} needs {name}: {cure}")
    return options


def _content(file: TaskFile) -> bytes:
    try:
        return file.path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{file.path} does not exist: give the Python file that defines the task") from None


@lru_cache
def _load_module(path: Path, content: bytes) -> ModuleType:
    """The module; it is executed again only if the file has changed."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "the file's name ends in .py"
    module = module_from_spec(spec)
    try:
        with _importable(path.parent):
            exec(compile(content, path, "exec"), module.__dict__)
    except SyntaxError as error:  # of this file, or of one that it imports
        raise ValueError(f"{error.filename}, line {error.lineno}: {error.msg}: correct the file") from None
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """A file may import its neighbours, as a Python script may."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))

"""The setting in which methods are compared: the settings of a run, without those that a comparison chooses itself."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedtrue.algorithm.methods import METHODS
from fedtrue.runner.comparison.contenders import DEFAULT_METHODS
from fedtrue.runner.settings import DEFAULT_METHOD, RunConfig, method_settings, read_toml, set_one
from fedtrue.spec import option_table, part_options

SEED = "seed"
CURE = 'give options with the method, as "fedopt(client=adam)"'
NAMES = ("label", "reference")  # a row has the name of its method, and no published number


def compared_config(
    task: str, rounds: int | None, settings: Mapping[str, Any], *, over: str = SEED, where: str = "settings"
) -> RunConfig:
    """The setting in which methods are compared; settings that would not be used are refused.

    Args:
        task: the name of a task, the TOML file of a run, or a task as FILE.py:NAME.
        rounds: of every run; None: as the file or the task says.
        settings: by dotted key.
        over: the setting in which the runs of a method differ.
        where: what gives the settings: "settings" of `ft.compare`, or the flag "--set".
    """
    config = _of_file(Path(task), over) if task.endswith(".toml") else RunConfig(task)
    for key, value in settings.items():
        _refuse_unused(key, value, over, where)
        config = set_one(config, key, value, where)
    return config if rounds is None else replace(config, rounds=rounds)


def _of_file(path: Path, over: str) -> RunConfig:
    """The settings of a TOML file without its method; says which of them are not used."""
    config, plain = read_toml(path), RunConfig("")
    named = ["method"] if config.method_name != plain.method_name else []
    chosen = [name for name in (over, *NAMES) if getattr(config, name, None) != getattr(plain, name, None)]
    unused = [*named, *part_options(config.method), *chosen]
    if unused:
        names = ", ".join(unused)
        warnings.warn(f"{path}: compare does not use {names}: every method has its own, {CURE}", stacklevel=2)
    return replace(config, method=plain.method)


def _refuse_unused(key: str, value: Any, over: str, where: str) -> None:
    first, _, rest = key.partition(".")
    if first == "method" or first in method_settings():
        example = _example(first, rest, value)
        cure = f'--methods "{example}"' if where == "--set" else f'methods=["{example}"]'
        raise ValueError(f"compare does not use {key}: give it with the method, {cure}")
    if key == over:
        raise ValueError(f"compare does not use {key}: it gives the runs of a method {key} 0, 1, 2 …, leave it out")
    if first in NAMES:
        raise ValueError(f"compare does not use {key}: its rows are named by their methods, leave it out")


def _example(option: str, rest: str, value: Any) -> str:
    """A method with this option: "fedprox(mu=0.5)"."""
    if option == "method":
        return str(value)
    given = f"{option}=NAME({rest.partition('.')[0]}={value})" if rest else f"{option}={value}"
    names = [DEFAULT_METHOD, *(name for name in DEFAULT_METHODS if name in METHODS), *METHODS]
    return f"{next(name for name in names if option in option_table(METHODS[name]))}({given})"

"""What runs are called, which of their settings differ, and which of them are one method under several seeds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedtrue.runner.records import Run

NOT_SETTINGS = ("label", "reference", "checkpoint_every", "tensorboard")  # they do not change what a run computes
PARTS = ("client", "server")
TITLES = {
    "client.name": "client",
    "client.learning_rate": "client rate",
    "client.lagged": "lagged",
    "client.epsilon": "client ε",
    "server.name": "server",
    "server.learning_rate": "server rate",
    "server.epsilon": "server ε",
}
PHRASES = {
    "task": "{}",
    "client.name": "client {}",
    "server.name": "server {}",
    "correction": "{} correction",
    "trace": "{} trace",
    "sampling": "{} sampling",
    "weighting": "{} weights",
}


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed; most often just one."""

    name: str
    runs: tuple[Run, ...]
    settings: Mapping[str, Any]  # dotted, without the seed

    @property
    def seeds(self) -> list[Any]:
        return [run.config.get("seed", 0) for run in self.runs]

    @property
    def reference(self) -> float | None:
        """The published number for these runs."""
        return next((run.config["reference"] for run in self.runs if run.config.get("reference") is not None), None)

    @property
    def status(self) -> str:
        """'finished', 'diverged', 'running', or how many of the seeds did what."""
        found = [status(run) for run in self.runs]
        if len(set(found)) == 1:
            return found[0]
        return ", ".join(f"{found.count(s)} of {len(found)} {s}" for s in ("diverged", "running") if s in found)


def status(run: Run) -> str:
    return run.summary["status"] if run.summary else "running"


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"client": {"name": "adam"}} → {"client.name": "adam"}."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        elif prefix or key not in NOT_SETTINGS:
            flat[prefix + key] = value
    return flat


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values are not the same everywhere, in the order in which they are first met.

    Options that a part's name tells (Adam has a beta1, SGD has none) are left out; rates are always told.
    """
    keys = dict.fromkeys(key for each in settings for key in each)
    found = [key for key in keys if len({_identity(each.get(key)) for each in settings}) > 1]
    return [key for key in found if not _is_told_by_name(key, settings)]


def _is_told_by_name(key: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    part, _, option = key.partition(".")
    if part not in PARTS or option in ("name", "learning_rate"):
        return False
    values: dict[Any, set[str]] = {}
    for each in settings:
        values.setdefault(each.get(f"{part}.name"), set()).add(_identity(each.get(key)))
    return all(len(seen) == 1 for seen in values.values())


def _identity(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def group(runs: Iterable[Run]) -> list[Group]:
    """Runs by everything but their seed, in the order in which they are first met, each with a name of its own."""
    found: dict[str, tuple[dict[str, Any], list[Run]]] = {}
    for run in runs:
        settings = {key: value for key, value in flatten(run.config).items() if key != "seed"}
        found.setdefault(_identity(settings), (settings, []))[1].append(run)
    keys = differing([settings for settings, _ in found.values()])
    names = distinct(
        [(_name(members, described(settings, keys)), described(settings, keys)) for settings, members in found.values()]
    )
    in_order = lambda members: tuple(sorted(members, key=lambda run: run.config.get("seed", 0)))
    return [Group(name, in_order(members), settings) for name, (settings, members) in zip(names, found.values())]


def _name(runs: Sequence[Run], description: str) -> str:
    """The label or folder that all share; what sets the group apart where folders count seeds or a sweep named them."""
    shared = {run.name for run in runs}
    generated = all(run.from_sweep and not run.config.get("label") for run in runs)
    if len(shared) == 1 and not (generated and description):
        return shared.pop()
    return description or str(runs[0].config.get("task", runs[0].name))


def described(settings: Mapping[str, Any], keys: Sequence[str]) -> str:
    """'client adam 0.1, joint correction, server rate 1': a part's rate stands behind its name where both are told."""
    rates = {f"{part}.name": f"{part}.learning_rate" for part in PARTS if f"{part}.name" in keys}
    parts = []
    for key in keys:
        value = settings.get(key)
        if value is None or key in rates.values():
            continue
        words = PHRASES.get(key, title(key) + " {}").format("no" if value == "none" else as_text(value))
        rate = settings.get(rates[key]) if rates.get(key) in keys else None
        parts.append(words if rate is None else f"{words} {as_text(rate)}")
    return ", ".join(parts)


def distinct(names: Sequence[tuple[str, str]]) -> list[str]:
    """The names; those used twice get their description added, and a number if that does not help."""
    plain = [name for name, _ in names]
    fuller = [
        f"{name} ({extra})" if extra and name != extra and plain.count(name) > 1 else name for name, extra in names
    ]
    return [
        f"{name} #{fuller[: i + 1].count(name)}" if fuller.count(name) > 1 else name for i, name in enumerate(fuller)
    ]


def title(key: str) -> str:
    """A setting's column heading."""
    return TITLES.get(key, key.replace("_", " "))


def rate_texts(rates: Sequence[float]) -> list[str]:
    """As few digits as tell them apart, at least two: 0.0032, 0.01, 0.032."""
    for digits in (2, 3, 4):
        texts = [f"{rate:.{digits}g}" for rate in rates]
        if len(set(texts)) == len(rates):
            return texts
    return [repr(rate) for rate in rates]


def as_text(value: Any) -> str:
    """A setting's value as people write it; a setting that is not there is a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)

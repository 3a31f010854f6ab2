"""Names of runs, the settings in which runs differ, and groups of runs that differ only in their seed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedtrue.algorithm.upload import DESCRIPTIONS
from fedtrue.runner.records import Run
from fedtrue.runner.settings import LOGGERS
from fedtrue.spec import part_name, part_options
from fedtrue.tasks.own_file import short_name

NOT_SETTINGS = ("label", "reference", "checkpoint_every", *LOGGERS)  # they do not change what a run computes
RATES = {"client_rate": "client.learning_rate", "server_rate": "server.learning_rate"}
PARTS = ("client", "server")
SHORT_PARTS = ("correction", "trace", "sampling", "weighting", *DESCRIPTIONS)  # often recorded by their name alone
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
    "compression": "{} compression",
    "aggregator": "{} aggregator",
    "privacy": "{} privacy",
    "attack": "{} attack",
}


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed (or in the keys `over`); often a single run."""

    name: str
    runs: tuple[Run, ...]
    settings: Mapping[str, Any]  # dotted keys, without those in `over`
    over: tuple[str, ...] = ("seed",)

    @property
    def seeds(self) -> list[Any]:
        return self.repeats("seed")

    def repeats(self, key: str) -> list[Any]:
        """The values of a setting in which the runs differ, one per run."""
        return [_repeat(run, key) for run in self.runs]

    def pair(self, run: Run) -> str:
        """Runs of two groups with the same pair belong together."""
        return identity([_repeat(run, key) for key in self.over])

    @property
    def reference(self) -> float | None:
        """The published number for these runs."""
        return next((run.config["reference"] for run in self.runs if run.config.get("reference") is not None), None)

    @property
    def status(self) -> str:
        """'finished', 'stopped', 'diverged' or 'running'; if the seeds differ, how many of them have each."""
        statuses = [run_status(run) for run in self.runs]
        if len(set(statuses)) == 1:
            return statuses[0]
        mixed = [status for status in ("diverged", "stopped", "running") if status in statuses]
        return ", ".join(f"{statuses.count(status)} of {len(statuses)} {status}" for status in mixed)


def _repeat(run: Run, key: str) -> Any:
    return flatten_config(run.config).get(key, 0 if key == "seed" else None)


def run_status(run: Run) -> str:
    return run.summary["status"] if run.summary else "running"


def runs_of(groups: Iterable[Group]) -> list[Run]:
    """All runs, group after group."""
    return [run for group in groups for run in group.runs]


def flatten_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"client": {"name": "adam"}} → {"client.name": "adam"}; named methods' rates get the names that parts' have.

    A correction with options has its name under the same key as one without.
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and key in SHORT_PARTS and not prefix:
            flat[key] = part_name(value)
            flat.update(flatten_config(part_options(value), f"{key}."))
        elif isinstance(value, Mapping):
            flat.update(flatten_config(value, f"{prefix}{key}."))
        elif prefix or key not in NOT_SETTINGS:
            flat[prefix + RATES.get(key, key)] = value if prefix or key != "task" else short_name(str(value))
    return flat


def differing_settings(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values differ, in order of first appearance.

    Options that follow from the name of a part are left out (Adam has a beta1, SGD has none); learning rates are kept.
    """
    keys = dict.fromkeys(key for table in settings for key in table)
    differing = [key for key in keys if len({identity(table.get(key)) for table in settings}) > 1]
    return [key for key in differing if not _follows_from_part_name(key, settings)]


def _follows_from_part_name(key: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    part, _, option = key.partition(".")
    if part not in PARTS or option in ("name", "learning_rate"):
        return False
    values_by_name: dict[Any, set[str]] = {}
    for table in settings:
        values_by_name.setdefault(table.get(f"{part}.name"), set()).add(identity(table.get(key)))
    return all(len(values) == 1 for values in values_by_name.values())


def identity(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def group_runs(runs: Iterable[Run], over: Sequence[str] = ("seed",)) -> list[Group]:
    """Groups of runs with equal settings except for those in `over`, in order of first appearance; names are unique."""
    by_settings: dict[str, tuple[dict[str, Any], list[Run]]] = {}
    for run in runs:
        settings = {key: value for key, value in flatten_config(run.config).items() if key not in over}
        by_settings.setdefault(identity(settings), (settings, []))[1].append(run)
    keys = differing_settings([settings for settings, _ in by_settings.values()])
    descriptions = [describe_settings(settings, keys) for settings, _ in by_settings.values()]
    names = [_group_name(members, text) for (_, members), text in zip(by_settings.values(), descriptions)]
    by_seed = lambda members: tuple(sorted(members, key=lambda run: run.config.get("seed", 0)))
    return [
        Group(name, by_seed(members), settings, tuple(over))
        for name, (settings, members) in zip(unique_names(list(zip(names, descriptions))), by_settings.values())
    ]


def _group_name(runs: Sequence[Run], description: str) -> str:
    """The label or folder name that all runs share; the description if they share none or a sweep generated it."""
    shared_names = {run.name for run in runs}
    is_generated = all(run.from_sweep and not run.config.get("label") for run in runs)
    if len(shared_names) == 1 and not (is_generated and description):
        return shared_names.pop()
    return description or short_name(str(runs[0].config.get("task", runs[0].name)))


def describe_settings(settings: Mapping[str, Any], keys: Sequence[str]) -> str:
    """'client adam 0.1, moments correction, lagged'; a rate follows the name of its part if both differ."""
    rates = {f"{part}.name": f"{part}.learning_rate" for part in PARTS if f"{part}.name" in keys}
    phrases = []
    for key in keys:
        value = settings.get(key)
        if value is None or key in rates.values():
            continue
        template = PHRASES.get(key, setting_title(key) + ("" if value is True else " {}"))
        phrase = template.format("no" if value == "none" else setting_text(value))
        rate = settings.get(rates[key]) if rates.get(key) in keys else None
        phrases.append(phrase if rate is None else f"{phrase} {setting_text(rate)}")
    return ", ".join(phrases)


def unique_names(named: Sequence[tuple[str, str]]) -> list[str]:
    """Names of (name, description) pairs; a repeated name gets its description, and a number if that is not enough."""
    names = [name for name, _ in named]
    longer = [f"{name} ({text})" if text and name != text and names.count(name) > 1 else name for name, text in named]
    return [
        f"{name} #{longer[: i + 1].count(name)}" if longer.count(name) > 1 else name for i, name in enumerate(longer)
    ]


def setting_title(key: str) -> str:
    """The column heading of a setting; options of the correction go by their own name."""
    return TITLES.get(key, key.removeprefix("correction.").replace("_", " "))


def rate_texts(rates: Sequence[float]) -> list[str]:
    """Learning rates with as few digits as keep them distinct, at least two: 0.0032, 0.01, 0.032."""
    for digits in (2, 3, 4):
        texts = [f"{rate:.{digits}g}" for rate in rates]
        if len(set(texts)) == len(rates):
            return texts
    return [repr(rate) for rate in rates]


def setting_text(value: Any) -> str:
    """The value of a setting as text; a dash if the setting does not exist."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)

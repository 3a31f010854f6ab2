"""Run folders with generated numbers for tests, in the format of the runner."""

import json
import math
from pathlib import Path

import numpy as np

from fedtrue.reports.labels import group_runs
from fedtrue.reports.measures import Measure
from fedtrue.runner.records import find_runs, read_run

ACCURACY = Measure("test.accuracy", higher_is_better=True, percent=True)
LOSS, TRAIN_LOSS = Measure("test.loss"), Measure("train.loss")


def read_groups(folder: Path):
    """The groups of all runs in a folder."""
    return group_runs([read_run(path) for path in find_runs([folder])])


def toml(config, above=""):
    """Enough TOML for a run's settings."""
    plain = "".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items() if not isinstance(value, dict))
    inner = {above + key: value for key, value in config.items() if isinstance(value, dict)}
    tables = (f"[{name}]\n{toml(value, name + '.')}" for name, value in inner.items())
    return plain + "\n" + "\n".join(tables)


def write_run(
    folder: Path, values, *, status="finished", every=1, metric="accuracy", loss=None, kinds=None, **settings
):
    """A run whose test metric after round r is values[r], measured every `every` rounds; None stands for NaN.

    `kinds`: how the folder declares its metrics; None for no declaration, as in old records.
    """
    folder.mkdir(parents=True)
    config = {"task": "shakespeare", "seed": 0, "correction": "joint", **settings}
    config.setdefault("client", {"name": "adagrad", "learning_rate": 0.1})
    config.setdefault("server", {"name": "sgd", "learning_rate": 1.0})
    origin = {"version": "0.1.0", "commit": "0000000", "command": "made by a test"}
    if kinds is not None and status == "running":
        origin["metrics"] = kinds
    (folder / "config.toml").write_text(toml({**config, "origin": origin}))
    with (folder / "metrics.jsonl").open("w") as file:
        for place, value in enumerate(values):
            line = {
                "round": place,
                "loss": loss[place] if loss is not None else 3.0 / (1 + place),
                "clients": 10,
                "dropped": 0,
            }
            line |= {"steps": 40, "pseudo_gradient_norm": 1.0 / (1 + place), "idle_steps": 0}
            line |= {"bytes_up": 2_000_000, "bytes_down": 1_000_000, "seconds": 0.5}
            if (place + 1) % every == 0:
                test = {"loss": line["loss"], metric: value}
                line["evaluation"] = {"test": test}
            file.write(json.dumps(line) + "\n")
    if status != "running":
        summary = {"status": status, "rounds": len(values), **({} if kinds is None else {"metrics": kinds})}
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def learning(rounds, end, speed, seed=0, noise=0.004):
    """A plausible accuracy curve: it rises to `end`, with a little noise."""
    rng = np.random.default_rng(seed)
    steps = np.arange(1, rounds + 1)
    return (end * (1 - np.exp(-speed * steps / rounds)) + noise * rng.standard_normal(rounds)).clip(0.001).tolist()


def methods(folder: Path, rounds=300, seeds=(0, 1, 2)):
    """Four methods under three seeds, each with a reference; one more that diverged, one that is still running."""
    kinds = {
        "client SGD": ("sgd", "none", 57.68, 0.574, 9),
        "client Adagrad": ("adagrad", "none", 57.85, 0.575, 14),
        "Adagrad + local correction": ("adagrad", "local", 57.75, 0.572, 11),
        "Adagrad + joint correction": ("adagrad", "joint", 58.06, 0.579, 15),
    }
    for name, (client, correction, reference, end, speed) in kinds.items():
        for seed in seeds:
            values = learning(rounds, end, speed, seed=hash_of(name) + seed)
            loss = (4.4 - 4 * np.asarray(learning(rounds, end * 1.4, speed, hash_of(name) + 7 + seed, 0.02))).tolist()
            write_run(
                folder / f"{client}-{correction}-{seed}",
                values,
                loss=loss,
                label=name,
                reference=reference,
                seed=seed,
                correction=correction,
                client={"name": client, "learning_rate": 10**-0.5},
            )
    write_run(
        folder / "adam-none-0",
        [*learning(40, 0.3, 5), None],
        status="diverged",
        label="client Adam, rate 10",
        client={"name": "adam", "learning_rate": 10.0},
        correction="none",
    )
    write_run(
        folder / "yogi-joint-0",
        learning(rounds // 2, 0.5, 6),
        status="running",
        label="client Yogi + joint correction",
        client={"name": "yogi", "learning_rate": 0.1},
    )
    return folder


def hash_of(text):
    return sum(map(ord, text))


def sweep(folder: Path, rounds=60, rates=7, server_rates=4):
    """Two panels of client rate × server rate, each with one maximum; the largest products of rates diverge."""
    folder.mkdir(parents=True)
    (folder / "sweep.toml").write_text('task = "stackoverflow_words"\n')
    for client, top, width in (("sgd", 0.218, 0.7), ("adagrad", 0.244, 1.6)):
        for i in range(rates):
            for j in range(server_rates):
                place = (i - rates / 2) + (j - server_rates / 2)
                end = top * math.exp(-((place / 2 / width) ** 2))
                broken = i + j >= rates + server_rates - 3 and client == "sgd"
                write_run(
                    folder / f"{client}-{i}-{j}",
                    learning(rounds, end, 6, seed=i + 10 * j),
                    status="diverged" if broken else "finished",
                    every=5,
                    task="stackoverflow_words",
                    correction="none",
                    client={"name": client, "learning_rate": 10 ** (-3 + i / 2)},
                    server={"name": "adam", "learning_rate": 10 ** (-2 + j / 2)},
                )
    return folder

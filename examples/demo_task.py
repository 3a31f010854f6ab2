"""The task of `make demo`: next characters of real plays; few sequences per role, so that it takes about a minute.

    fedtrue run examples/demo_task.py:task --client adam --client-rate 0.01 --rounds 20

The grid by which the demo's learning rates were chosen is experiments/demo/tuning.toml.
"""

from dataclasses import replace

import fedtrue as ft

SEQUENCES = 16  # per role
EVALUATED = 1024  # sequences of each held-out split


def task(validation: float = 0.0, dtype: str | None = None) -> ft.Task:
    plays = ft.tasks.shakespeare(validation=validation, dtype=dtype)
    return replace(plays, name="plays", train=plays.train.take(SEQUENCES), evaluation_limit=EVALUATED)

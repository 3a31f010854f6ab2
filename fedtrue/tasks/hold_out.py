"""Clients that never train: they are held out before training, and evaluated beside the other splits."""

from dataclasses import replace

from fedtrue.spec import with_spec
from fedtrue.tasks.task import Task

HOLD_OUT_SEED = 0  # which clients are held out is a property of the federation, not of a run


def hold_out_clients(task: Task, fraction: float) -> Task:
    """The task with some clients that never train; evaluations report their metrics as the split `unseen`.

    Args:
        task: with at least two train clients.
        fraction: of its train clients, above 0 and below 1; at least one is held out. The same clients are held out
            for every seed of a run.

    Returns:
        A task that trains the other clients. Its `unseen` has all examples of those held out; its validation and test
        data are unchanged.

    >>> import fedtrue as ft
    >>> task = ft.tasks.hold_out_clients(ft.tasks.synthetic_tags(clients=20, words=50, tags=5), 0.1)
    >>> len(task.train), len(task.unseen)
    (18, 2)
    """
    if task.unseen is not None:
        raise ValueError(f"task {task.name!r} holds out {len(task.unseen)} clients already: hold them out once")
    if hasattr(task, "minimiser"):
        raise ValueError(f"task {task.name!r} knows the minimiser of all its clients: hold out clients of another task")
    if not 0 < fraction < 1:
        raise ValueError(f"holdout_clients is {fraction}: choose a fraction above 0 and below 1")
    unseen, train = task.train.split_clients(fraction, HOLD_OUT_SEED)
    return with_spec(replace(task, train=train, unseen=unseen, holdout_clients=fraction), task.spec)

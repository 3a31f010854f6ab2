"""A small federation for the tests of this folder: three unlike clients with 3, 8 and 5 examples."""

import numpy as np
from flwr.clientapp import ClientApp

import fedtrue as ft


def noisy_task(**settings):
    rng = np.random.default_rng(0)
    clients = [{"x": rng.normal(i, 1, (n, 3)).astype(np.float32)} for i, n in enumerate((3, 8, 5))]
    return ft.tasks.from_arrays(
        clients,
        init=lambda key: {"w": np.zeros(3, np.float32)},
        loss=lambda params, example: ((params["w"] - example["x"]) ** 2).sum(),
        **{"batch_size": 2, **settings},
    )


def grid_of(task, method, **options):
    return ft.flower.LocalGrid(ft.flower.client_app(task, method, **options), nodes=len(task.train))


def weights(params):
    return np.concatenate([np.ravel(leaf) for leaf in params.values()])


def tampered(app, change, when=lambda message: True):
    """The app, with `change(content)` applied to the content of its training replies."""
    bad = ClientApp()
    bad.query()(app)

    @bad.train()
    def train(message, context):
        reply = app(message, context)
        if when(message):
            change(reply.content)
        return reply

    return bad

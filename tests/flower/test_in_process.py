"""A federation of Flower apps in one process: the strategy and the apps are real, only the network is not."""

from dataclasses import replace

import numpy as np
import pytest

import fedtrue as ft
from tests.flower.federations import grid_of, noisy_task, weights

METHODS = {
    "none": ft.fedopt(ft.client.adagrad(0.1), correction="none"),
    "local": ft.fedopt(ft.client.adagrad(0.1), correction="local"),
    "joint": ft.fedopt(ft.client.adam(0.1), ft.server.momentum(0.5)),
    "mean_gradient": ft.fedopt(ft.client.adagrad(0.1), correction={"name": "local", "report": "mean_gradient"}),
    "moments": ft.fedopt(ft.client.adam(0.1), correction="moments"),
    "fedprox": ft.methods.fedprox(ft.client.sgd(0.01), mu=0.1),
    "scaffold": ft.methods.scaffold(ft.client.sgd(0.01)),
}


QUICK = ("joint", "moments", "scaffold")  # in `make test`; the others have the same law


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in METHODS]
)
def test_a_deployed_run_has_the_weights_of_the_simulation(name):
    task, method = noisy_task(local_epochs=2), METHODS[name]
    strategy = ft.flower.Strategy(method, task, cohort=2, seed=3)
    strategy.start(grid_of(task, method), num_rounds=4)
    simulated = ft.train(task, method, rounds=4, cohort=2, seed=3)
    np.testing.assert_allclose(weights(strategy.result.params), weights(simulated.params), rtol=1e-5, atol=1e-5)
    for column in ("cohort", "steps", "clients"):
        np.testing.assert_array_equal(strategy.result.history[column], simulated.history[column])
    np.testing.assert_allclose(strategy.result.history["loss"], simulated.history["loss"], rtol=1e-5)


@pytest.mark.slow
def test_two_phases_and_drawing_by_size_have_the_weights_of_the_simulation():
    task = noisy_task()
    for method in (
        ft.methods.mime(ft.client.sgd(0.01)),
        ft.fedopt(ft.client.adagrad(0.1), sampling="by_size"),
        ft.fedopt(ft.client.adagrad(0.1), sampling="poisson"),
    ):
        strategy = ft.flower.Strategy(method, task, cohort=2)
        strategy.start(grid_of(task, method), num_rounds=3)
        simulated = ft.train(task, method, rounds=3, cohort=2)
        np.testing.assert_allclose(weights(strategy.result.params), weights(simulated.params), rtol=1e-5, atol=1e-5)


def test_a_node_that_has_only_its_own_data_sends_the_same():
    task, method = noisy_task(), METHODS["scaffold"]

    def own_task(context):
        i = context.node_config["partition-id"]
        rows = slice(task.train.starts[i], task.train.starts[i] + task.train.sizes[i])
        only = ft.ClientData.from_clients([{"x": task.train.columns["x"][rows]}])
        return replace(task, train=only)

    whole, own = (ft.flower.Strategy(method, task) for _ in range(2))
    whole.start(grid_of(task, method), num_rounds=3)
    own.start(ft.flower.LocalGrid(ft.flower.client_app(own_task, method), 3), num_rounds=3)
    np.testing.assert_allclose(weights(own.result.params), weights(whole.result.params), rtol=1e-6)

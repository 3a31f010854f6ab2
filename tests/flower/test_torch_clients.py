"""Clients in PyTorch with their own loop, alone and beside clients in JAX."""

import numpy as np
import pytest

import fedtrue as ft
from tests.flower.federations import noisy_task, weights

torch = pytest.importorskip("torch")
flwr_clientapp = pytest.importorskip("flwr.clientapp")


def torch_app(task, rate, correction=ft.flower.correction):
    """The task's client in PyTorch: three full batches, as with batch_size=8 and local_epochs=3."""
    app = flwr_clientapp.ClientApp()

    def data(context):
        i = context.node_config["partition-id"]
        return torch.tensor(np.array(task.train.columns["x"][task.train.starts[i] :][: task.train.sizes[i]]))

    @app.query()
    def describe(message, context):
        return ft.flower.answer(message, context, examples=len(data(context)))

    @app.train()
    def train(message, context):
        x, start = data(context), message.content["arrays"].to_torch_state_dict()
        model = torch.nn.ParameterDict({"w": torch.nn.Parameter(start["w"].clone())})
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        trace, total = ft.torch.trace(optimizer, correction(message)), 0.0
        for _ in range(3):
            optimizer.zero_grad()
            loss = ((model["w"] - x) ** 2).sum(1).mean()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        update, metrics = trace.update(model, start), {"loss": (total, 3 * len(x))}
        return ft.flower.reply(message, context, update, examples=len(x), steps=trace.steps, metrics=metrics)

    return app


@pytest.mark.parametrize(
    "correction", ["joint", *(pytest.param(name, marks=pytest.mark.slow) for name in ("none", "moments"))]
)
def test_a_mixed_federation_has_the_weights_of_the_simulation(correction):
    task = noisy_task(batch_size=8, local_epochs=3)
    method = ft.fedopt(ft.client.adam(0.05, epsilon_after_correction=True), correction=correction)
    jax_client = ft.flower.client_app(task, method)
    strategy = ft.flower.Strategy(method, task)
    strategy.start(ft.flower.LocalGrid([jax_client, torch_app(task, 0.05), jax_client]), num_rounds=4)
    simulated = ft.train(task, method, rounds=4)
    np.testing.assert_allclose(weights(strategy.result.params), weights(simulated.params), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(strategy.result.history["loss"], simulated.history["loss"], rtol=1e-5)


def test_a_client_with_the_wrong_correction_is_refused(caplog):
    task, method = noisy_task(), ft.fedopt(ft.client.adam(0.05), correction="joint")
    wrong = torch_app(task, 0.05, correction=lambda message: "local")
    strategy = ft.flower.Strategy(method, clients=3)
    strategy.start(
        ft.flower.LocalGrid([torch_app(task, 0.05), wrong, torch_app(task, 0.05)]),
        ft.flower.arrays(torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.zeros(3))})),
        num_rounds=1,
    )
    assert strategy.result.history["refused"].tolist() == [1]
    assert "client 1 is refused: it sent no 'inverse_trace'" in caplog.text

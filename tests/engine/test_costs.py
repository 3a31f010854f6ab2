"""The costs of a method are those of its own shapes."""

import pytest

import fedtrue as ft
from fedtrue.algorithm.methods import METHODS
from fedtrue.engine.costs import costs_of
from fedtrue.runner.comparison.rates import CLIENT_CENTRES, any_rates
from fedtrue.spec import FACTORIES


def test_fedavg_sends_and_receives_one_model_and_holds_weights_and_a_gradient():
    costs = costs_of(ft.methods.fedavg(0.1))
    assert (costs.up, costs.down, costs.gradients) == ((1,), (1,), (1,))
    assert (costs.kept, costs.held, costs.server) == (0, 2, 0)  # held: the weights and one gradient


@pytest.mark.parametrize(
    "correction, up",
    [("none", 1), ("local", 1), ("joint", 2)],  # joint sends the inverse trace of adaptive clients besides the update
)
def test_the_joint_correction_of_adaptive_clients_costs_one_more_model_up(correction, up):
    assert costs_of(ft.fedopt(ft.client.adagrad(0.1), correction=correction)).up == (up,)


def test_each_phase_of_mime_has_its_own_messages_and_gradients():
    costs = costs_of(ft.methods.mime(ft.client.momentum(0.1)))
    assert costs.up == (1, 1)  # the gradient at x, then the update
    assert costs.down == (1, 3)  # x, then x, the momentum and the mean gradient
    assert costs.gradients == (1, 2)  # at x, then at y and at x on the same batch


def test_every_method_and_client_optimizer_has_default_rates_to_look_at_its_shapes_with():
    for name in METHODS:
        assert costs_of(ft.from_spec(any_rates({"name": name}))).up[-1] >= 1
    assert set(CLIENT_CENTRES) == set(FACTORIES["client"]) - {"preconditioned"}  # whose matrices have no default

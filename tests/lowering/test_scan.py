"""Scans whose products leave the loop give what they gave before; others are left as they are."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from fedtrue.lowering import Program
from fedtrue.lowering.scan import has_work_outside, with_work_outside
from tests.lowering.test_rules import assert_same, normal

CELLS = {
    "lstm": lambda: nn.RNN(nn.OptimizedLSTMCell(5)),
    "separate_gates": lambda: nn.RNN(nn.LSTMCell(5)),
    "gru": lambda: nn.RNN(nn.GRUCell(5)),
    "reverse": lambda: nn.RNN(nn.SimpleCell(5), reverse=True),
    "both_ways": lambda: nn.Bidirectional(nn.RNN(nn.GRUCell(5)), nn.RNN(nn.GRUCell(5))),
    "unrolled": lambda: nn.RNN(nn.GRUCell(5), unroll=4),
}


def gradients(module):
    def of(params, x):
        return jax.value_and_grad(lambda p, x: jnp.sum(jnp.sin(module.apply(p, x))), (0, 1))(params, x)

    return of


def scans(function, *arguments):
    equations = jax.make_jaxpr(function)(*arguments).eqns
    return [equation for equation in equations if equation.primitive is lax.scan_p]


def products_inside(scan_equations):
    bodies = [equation.params["jaxpr"].jaxpr for equation in scan_equations]
    return sum(equation.primitive is lax.dot_general_p for body in bodies for equation in body.eqns)


@pytest.mark.parametrize("cell", list(CELLS))
def test_recurrent_networks_keep_their_values_and_gradients(cell):
    module = CELLS[cell]()
    x = normal(0, (2, 7, 3))
    params = module.init(jax.random.key(0), x)
    assert_same(gradients(module), (params, x), "cpu")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_recurrent_networks_with_weights_per_lane_keep_their_values_and_gradients(cell):
    module = CELLS[cell]()
    x = normal(0, (2, 7, 3))
    lanes = [module.init(jax.random.key(seed), x) for seed in (0, 1)]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *lanes)
    assert_same(jax.vmap(gradients(module)), (params, jnp.stack([x, -x])), "gpu")


def test_only_the_recurrent_products_of_an_lstm_stay_in_the_loop():
    module, x = CELLS["lstm"](), normal(0, (2, 7, 3))
    params = module.init(jax.random.key(0), x)
    theirs = scans(gradients(module), params, x)
    ours = [scans(partial(with_work_outside, **scan.params), *(v.aval for v in scan.invars))[0] for scan in theirs]
    # Forward x·W and h·U; backward the gradients of x, h, W and U. What stays is h·U and the gradient of h.
    assert products_inside(theirs) == 6
    assert products_inside(ours) == 2


def applies(function, *arguments):
    (equation,) = scans(function, *arguments)
    return has_work_outside([v.aval for v in equation.invars], equation.params)


def test_a_loop_over_batches_that_only_adds_up_is_left_alone():
    """Its products need no carry at all; outside the loop all batches would be in memory at once."""
    weights, batches = normal(0, (3, 4)), normal(1, (5, 2, 3))
    add_up = lambda weights, batches: lax.scan(lambda s, x: (s + (x @ weights).sum(), None), 0.0, batches)[0]
    assert not applies(add_up, weights, batches)


def test_a_recurrence_that_would_need_much_memory_is_left_alone():
    recur = lambda w, u, xs: lax.scan(lambda h, x: (jnp.tanh(x @ w + h @ u), None), jnp.zeros((64, 1024)), xs)
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8, 1024), (1024, 1024), (100, 64, 8))]
    assert applies(recur, *shapes)
    shapes[2] = jax.ShapeDtypeStruct((10_000, 64, 8), jnp.float32)  # 10,000 · 64 · 1024 · 4 bytes = 2.6 GB
    assert not applies(recur, *shapes)


def test_layers_as_a_scan_keep_their_gradients_and_their_memory():
    """Each step has its own matrix: one product for all steps would not be larger, so nothing leaves the loop."""
    layers = lambda weights, x: lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0].sum()
    weights, x = normal(0, (4, 3, 3)), normal(1, (2, 3))
    assert not applies(layers, weights, x)
    assert_same(jax.grad(layers), (weights, x), "cpu")


def test_a_sum_that_the_loop_reads_stays_in_the_loop():
    def running(w, xs):
        def step(carry, x):
            h, total = carry
            total = total + jnp.outer(h, x)
            return (jnp.tanh(x + h @ w + total.sum()), total), h @ w

        return lax.scan(step, (jnp.zeros(3), jnp.zeros((3, 3))), xs)

    arrays = normal(0, (3, 3)) / 9, normal(1, (5, 3))
    assert_same(running, arrays, "cpu")
    assert_same(jax.grad(lambda w, xs: jnp.sum(jnp.sin(running(w, xs)[1]))), arrays, "cpu")


def test_carries_that_are_handed_through_and_constant_outputs_survive():
    def passing(w, xs):
        def step(carry, x):
            h, same = carry
            return (jnp.tanh(x @ w + h @ w), same), (jnp.float32(1), x, same, h @ w)

        return lax.scan(step, (jnp.zeros(3), jnp.arange(2.0)), xs)

    arrays = normal(0, (3, 3)), normal(1, (5, 3))
    assert applies(passing, *arrays)
    assert_same(passing, arrays, "cpu")


def test_a_scan_with_a_print_is_left_alone(capfd):
    def speaking(w, xs):
        def step(h, x):
            jax.debug.print("step")
            return jnp.tanh(x @ w + h @ w), None

        return lax.scan(step, jnp.zeros(3), xs)[0]

    arrays = normal(0, (3, 3)), normal(1, (2, 3))
    assert not applies(speaking, *arrays)
    np.testing.assert_allclose(Program(speaking)(*arrays), jax.jit(speaking)(*arrays), rtol=1e-6)
    jax.effects_barrier()
    assert capfd.readouterr().out.count("step") == 4  # two steps, by two programs

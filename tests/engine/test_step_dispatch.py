"""Rounds with one dispatch per local step: the same results, chosen where it is faster."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fedtrue as ft
from fedtrue.engine.step_dispatch import StepSeconds
from fedtrue.lowering import coverage, slow_in_loops
from fedtrue.precision import float64

METHODS = {
    "joint": lambda: ft.fedopt(ft.client.adam(0.01), correction="joint"),
    "scaffold": lambda: ft.methods.scaffold(ft.client.sgd(0.01)),  # clients keep a memory
    "mimelite": lambda: ft.methods.mimelite(ft.client.momentum(0.01)),
    "mime": lambda: ft.methods.mime(ft.client.momentum(0.01)),  # two phases
    "delta_sgd": lambda: ft.methods.delta_sgd(0.01),  # one more gradient per step
    "fedadamw": lambda: ft.methods.fedadamw(0.01),  # a term in every step
}


@pytest.mark.parametrize("method", list(METHODS))
def test_single_steps_give_the_weights_and_records_of_one_program(method):
    task = ft.tasks.quadratic(noise=0.3)
    with float64():
        results = []
        for dispatch in ("round", "step"):
            simulation = ft.Simulation(task, METHODS[method](), local_steps=[2, 5], seed=3, dispatch=dispatch)
            results.append(simulation.run(simulation.start(), 3))
    (together, infos), (single, own_infos) = results
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), together.server, single.server)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), infos, own_infos)
    assert single.round == 3


def test_later_rounds_compile_nothing():
    task = ft.tasks.quadratic()
    with float64():
        simulation = ft.Simulation(task, ft.fedopt(ft.client.sgd(0.01)), local_steps=[2, 5], dispatch="step")
        state, _ = simulation.run(simulation.start(), 1)
        programs = simulation._step_dispatch._phases[0]
        simulation.run(state, 2)
    assert [programs.start.compilations, programs.step.compilations, programs.finish.compilations] == [1, 1, 1]


def test_timing_decides_and_leaves_the_result_alone():
    task = ft.tasks.quadratic()
    method = ft.fedopt(ft.client.sgd(0.01))
    with float64():
        timed, plain = (ft.Simulation(task, method, dispatch=dispatch) for dispatch in ("timed", "round"))
        state, _ = timed.run(timed.start(), 2)
        expected, _ = plain.run(plain.start(), 2)
    assert timed.dispatch in ("round", "step")
    assert timed.step_seconds is not None
    assert (timed.dispatch == "step") == (timed.step_seconds.alone < timed.step_seconds.in_loop)
    np.testing.assert_allclose(state.server.params, expected.server.params, rtol=1e-12)


def test_the_reason_is_said_with_both_times():
    assert str(StepSeconds(alone=0.010, in_loop=0.0728)) == (
        "one dispatch per local step: a step takes 10.0 ms alone, 72.8 ms inside the program"
    )
    assert str(StepSeconds(0.002, 0.001)).startswith("all steps of a round in one dispatch: ")


def convolve(kernel, x):
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).sum()


def test_only_a_convolution_without_a_rule_is_timed(monkeypatch):
    arrays = jnp.ones((3, 3, 2, 4)), jnp.ones((1, 6, 6, 2))
    gradient = lambda kernel, x: lax.fori_loop(0, 2, lambda i, k: k - jax.grad(convolve)(k, x), kernel)
    assert not slow_in_loops(gradient, *arrays, platform="cpu")  # our rule reorders its axes
    monkeypatch.setattr(coverage, "unavailable", lambda: "another JAX")
    assert slow_in_loops(gradient, *arrays, platform="cpu")
    assert not slow_in_loops(convolve, *arrays, platform="cpu")  # its axes are in order already
    assert not slow_in_loops(gradient, *arrays, platform="gpu")


def test_a_model_whose_convolutions_have_no_rule_is_timed_by_default(monkeypatch):
    clients = [{"x": np.ones((2, 6, 6, 2), np.float32)}]
    task = ft.tasks.from_arrays(
        clients, lambda key: jnp.ones((3, 3, 2, 4)), lambda kernel, example: convolve(kernel, example["x"][None])
    )
    assert ft.Simulation(task, ft.methods.fedavg(0.1)).dispatch == "round"
    monkeypatch.setattr(coverage, "unavailable", lambda: "another JAX")
    assert ft.Simulation(task, ft.methods.fedavg(0.1)).dispatch == "timed"


def test_runs_that_train_together_are_one_program():
    with pytest.raises(ValueError, match="dispatch 'step' is for single runs"):
        ft.Simulation(ft.tasks.quadratic(), ft.methods.fedavg, grid=jnp.ones(2), dispatch="step")


def test_a_wrong_dispatch_is_refused():
    with pytest.raises(ValueError, match=r"dispatch 'steps' is not known \(did you mean 'step'"):
        ft.Simulation(ft.tasks.quadratic(), ft.methods.fedavg(0.1), dispatch="steps")

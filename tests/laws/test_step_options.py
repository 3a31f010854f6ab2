"""Schedules within a round, clipping and weight decay: what they are multiplied by is in the exact trace."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedtrue as ft
from fedtrue.algorithm.client_update import ClientParts, client_update, client_work
from fedtrue.algorithm.correction import none
from fedtrue.algorithm.interface import Broadcast, Client, Context, Loss
from fedtrue.algorithm.trace import exact
from fedtrue.precision import float64

RATE, DECAY, SLOPE, START = 0.05, 0.3, np.array([0.4, -2.0, 1.0]), np.array([1.0, 2.0, -3.0])
EVERYTHING = {
    "within_round": {"name": "cosine", "initial": 1.0, "final": 0.1},
    "clip_norm": 1.2,
    "clip_value": 1.5,
    "weight_decay": DECAY,
}
MATRIX = [[[2.0, 0.5, 0.0], [0.5, 1.0, 0.1], [0.0, 0.1, 3.0]]]


def constant_gradient(steps=6):
    """One client whose gradient is SLOPE everywhere."""
    return ft.tasks.from_arrays(
        [{"slope": np.broadcast_to(SLOPE, (steps, 3))}],
        init=lambda key: jnp.asarray(START),
        loss=lambda params, example: example["slope"] @ params,
        batch_size=1,
        float64=True,
    )


def expected(rounds, decay=DECAY):
    """Reported by `local`: Δ/N = η g, and η λ of the weight decay."""
    x = START
    for _ in range(rounds):
        x = x - RATE * (SLOPE + decay * x)
    return x


@pytest.mark.parametrize(
    "client",
    [
        ft.client.sgd(RATE, **EVERYTHING),
        ft.client.momentum(RATE, nesterov=True, **EVERYTHING),
        ft.client.adagrad(RATE, lagged=True, **EVERYTHING),
        ft.client.adam(RATE, **EVERYTHING),
        ft.client.yogi(RATE, **EVERYTHING),
        ft.client.preconditioned(MATRIX, RATE, **EVERYTHING),
    ],
    ids=lambda client: client.name,
)
def test_a_client_with_a_constant_gradient_reports_it_under_every_option_and_a_pull(client):
    method = ft.methods.fedprox(client, mu=2.0, correction="local")
    np.testing.assert_allclose(ft.train(constant_gradient(), method, rounds=1).params, expected(1), rtol=1e-10)


@pytest.mark.parametrize("name", EVERYTHING)
def test_each_option_alone_is_in_the_trace(name):
    client = ft.client.adam(RATE, **{name: EVERYTHING[name]})
    decay = DECAY if name == "weight_decay" else 0.0
    params = ft.train(constant_gradient(), ft.fedopt(client, correction="local"), rounds=1).params
    np.testing.assert_allclose(params, expected(1, decay), rtol=1e-10)


@pytest.mark.parametrize("state", ["inherit", "sync"])
def test_states_that_outlive_the_round_keep_the_trace_exact(state):
    client = ft.client.adam(RATE, **EVERYTHING)
    method = ft.fedopt(client, correction="local", client_state=state)
    np.testing.assert_allclose(ft.train(constant_gradient(), method, rounds=3).params, expected(3), rtol=1e-10)


def test_scaffolds_control_variate_is_the_gradient_under_every_option():
    """Option II with one client: c_1 = c = the gradient after a round, so the second round reports it again."""
    method = ft.methods.scaffold(ft.client.adam(RATE, **EVERYTHING), correction="local")
    with float64():
        simulation = ft.Simulation(constant_gradient(), method)
        state, _ = simulation.run(simulation.start(), 2)
    np.testing.assert_allclose(state.server.shared, SLOPE, rtol=1e-10)
    np.testing.assert_allclose(state.server.params, expected(2), rtol=1e-10)


# --- clipping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option, clip", [("clip_norm", optax.clip_by_global_norm), ("clip_value", optax.clip)])
def test_clipping_is_that_of_optax(option, clip):
    """Uncorrected, on two arrays: x_1 = x_0 − η clip(g_0), …, five steps."""
    gradients = {"a": np.array([[3.0, 4.0], [0.1, 0.2], [0.0, 0.0], [9.0, -1.0], [-0.5, 0.5]]), "b": np.arange(5.0)}
    task = ft.tasks.from_arrays(
        [gradients],
        init=lambda key: {"a": jnp.ones(2), "b": jnp.zeros(())},
        loss=lambda params, example: example["a"] @ params["a"] + example["b"] * params["b"],
        batch_size=1,
        shuffle=False,
        float64=True,
    )
    found = ft.train(task, ft.fedopt(ft.client.sgd(0.1, **{option: 0.7}), correction="none"), rounds=1).params
    transformation = clip(0.7)
    of_step = lambda k: {name: column[k] for name, column in gradients.items()}
    with float64():
        clipped = [transformation.update(of_step(k), optax.EmptyState())[0] for k in range(5)]
        np.testing.assert_allclose(found["a"], 1 - 0.1 * sum(g["a"] for g in clipped), rtol=1e-12)
        np.testing.assert_allclose(found["b"], -0.1 * sum(g["b"] for g in clipped), rtol=1e-12)


def test_a_bound_above_all_gradients_changes_nothing():
    task = ft.tasks.quadratic(noise=1.0)
    run = lambda **options: ft.train(task, ft.fedopt(ft.client.adam(0.01, **options)), rounds=5, local_steps=[2, 5])
    np.testing.assert_allclose(run(clip_norm=1e9).params, run().params, rtol=1e-12)


# --- weight decay -----------------------------------------------------------------------------------------------------

HESSIANS, MINIMA = [[1.0, 30.0], [20.0, 1.0], [5.0, 2.0]], [[2.0, 1.0], [-1.0, -2.0], [0.5, 3.0]]
STEPS, LAMBDA = [2, 7, 4], 2.0
TASK = ft.tasks.quadratic(HESSIANS, MINIMA)


def regularised_minimiser(weights):
    """Of F(x) + ½ Σ_j weights_j x_j²: mean h_j (x_j − m_j) + weights_j x_j = 0."""
    h, m = np.array(HESSIANS), np.array(MINIMA)
    return (h * m).mean(axis=0) / (h.mean(axis=0) + weights)


def distance(client, correction, weights=LAMBDA):
    point = ft.theory.measured_fixed_point(TASK, ft.fedopt(client, correction=correction), STEPS).params
    return np.linalg.norm(point - regularised_minimiser(weights))


@pytest.mark.parametrize(
    "client, correction",
    [(ft.client.sgd, "joint"), (ft.client.adagrad, "local"), (ft.client.adam, "local")],
)
def test_the_corrected_fixed_point_is_the_minimiser_with_weight_decay_added(client, correction):
    """λ' = λ under `local` for every client optimizer, under `joint` for SGD; what is left falls with the rate."""
    near, far = (distance(client(rate, weight_decay=LAMBDA), correction) for rate in (5e-5, 1e-4))
    assert near / far == pytest.approx(0.5, abs=0.05) and far < 0.02


def test_the_uncorrected_fixed_point_is_not():
    near, far = (distance(ft.client.sgd(rate, weight_decay=LAMBDA), "none") for rate in (5e-5, 1e-4))
    assert near / far == pytest.approx(1.0, abs=0.01) and near > 0.1


def test_under_joint_the_decay_is_divided_by_the_clients_preconditioner_as_adamws():
    """P = diag(4, 0.5) at every client: P ∇F + λ x = 0, the minimiser of F + ½ Σ_j λ/P_j x_j²."""
    p = np.array([4.0, 0.5])
    client = lambda rate: ft.client.preconditioned([p, p, p], rate, weight_decay=LAMBDA)
    near, far = (distance(client(rate), "joint", LAMBDA / p) for rate in (5e-5, 1e-4))
    assert near / far == pytest.approx(0.5, abs=0.05) and far < 0.02


def test_the_share_that_decay_takes_off_has_no_cancellation_in_float32():
    """η λ = 1e-7, 50 steps: 1 − (1 − 1e-7)⁵⁰ = 5e-6 to 3e-6 relative; as a float32, 1 − 1e-7 is 1 − 1.19e-7."""
    parts = ClientParts(ft.client.sgd(1e-4, weight_decay=1e-3), exact(), none())
    loss = Loss(lambda params, batch: (0.0 * params, {}), {})
    client = Client(jnp.int32(0), jnp.int32(50), jnp.float32(1e-4), jnp.float32(1.0))
    broadcast, context = Broadcast(jnp.float32(3.0), ()), Context(0, None, 1, 1)
    output = client_update(client_work(loss, parts), broadcast, client, (), lambda k: {}, context)
    share = output.contributions["decay.update"].value
    assert share.dtype == jnp.float32
    assert float(share) == pytest.approx(-np.expm1(50 * np.log1p(-1e-7)), rel=1e-5)


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build, said",
    [
        (lambda: ft.client.adam(0.1, clip_norm=0.0), "adam: clip_norm must be a finite number above 0, not 0.0"),
        (lambda: ft.client.adam(0.1, clip_value=-1), "adam: clip_value must be a finite number above 0"),
        (lambda: ft.client.sgd(0.1, weight_decay=-1e-4), "sgd: weight_decay must be a finite number at least 0"),
        (lambda: ft.client.sgd(0.1, within_round="lin"), "sgd: within_round: schedule 'lin' is not known .*'linear'"),
        (lambda: ft.client.sgd(0.1, weight_deca=1), r"sgd has no weight_deca \(did you mean 'weight_decay'\?\)"),
        (
            lambda: ft.fedopt(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))),
            r"optax transformation.*use a part such as ft.client.adam\(0.01, clip_norm=1.0, weight_decay=1e-4\)",
        ),
    ],
)
def test_a_wrong_option_is_refused_with_the_cure(build, said):
    with pytest.raises((ValueError, TypeError), match=said):
        build()

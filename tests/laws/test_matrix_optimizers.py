"""Muon and Shampoo: their traces are matrices, and the laws of diagonal traces hold for them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm import linear
from fedtrue.algorithm.matrix_optimizer import inverse_root
from fedtrue.precision import float64
from fedtrue.theory import measured_constants, measured_fixed_point
from tests.cases import quick
from tests.laws.test_trace import displacement, preconditioners_along, trace_of

OPTIMIZERS = {
    "muon": ft.client.muon(0.1),
    "shampoo": ft.client.shampoo(0.1),
    "shampoo, both sides": ft.client.shampoo(0.1, sides="both"),
}
SHAPES = {"tall": (4, 3), "wide": (2, 5), "square": (3, 3), "a kernel": (2, 2, 3, 4)}
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


# --- the trace


@every_shape
@every_optimizer
def test_weights_of_the_gradients_sum_to_the_identity_under_the_exact_trace(optimizer, shape):
    with float64():
        gradients, constant = random(5, *shape), random(*shape, seed=1)
        pairs = preconditioners_along(optimizer, gradients)
        inverse = linear.inverse(trace_of("exact", optimizer, gradients, pairs))
        moved = displacement(optimizer, jnp.broadcast_to(constant, gradients.shape), pairs)  # Σ_k A_k g
        np.testing.assert_allclose(linear.apply(inverse, moved), constant, atol=1e-8)


@pytest.mark.parametrize(("shape", "size"), [((4, 3), 3), ((2, 5), 2), ((2, 2, 3, 4), 4)])
def test_muons_trace_is_the_sum_of_its_preconditioners_weighted_by_the_momentum_of_ones(shape, size):
    """N = Σ_k (1 − β^{k+1}) P_k, on the smaller side."""
    optimizer = ft.client.muon(0.1, beta=0.5)
    with float64():
        gradients = random(2, *shape)
        pairs = preconditioners_along(optimizer, gradients)
        (p0, _), (p1, _) = pairs
        n = trace_of("exact", optimizer, gradients, pairs)
        assert n.matrix.shape == (size, size) and n.side == p0.side
        np.testing.assert_allclose(n.matrix, p0.matrix / 2 + 3 * p1.matrix / 4)  # 1 − 1/2, 1 − 1/4
        paper = trace_of("paper", optimizer, gradients, pairs)
        np.testing.assert_allclose(paper.matrix, 3 * p0.matrix / 4 + p1.matrix / 2)  # the reverse order


@every_optimizer
def test_steps_before_the_first_gradient_of_a_matrix_count_with_the_preconditioner_of_that_gradient(optimizer):
    with float64():
        gradients = random(3, 4, 3)
        both = lambda g: [
            trace_of(kind, optimizer, g, preconditioners_along(optimizer, g)).matrix
            for kind in ("first_gradient", "exact")
        ]
        np.testing.assert_allclose(*both(gradients), rtol=1e-12)
        late = gradients.at[0].set(0.0)
        from_first, exact = both(late)
        (p0, _), (p1, _), (p2, _) = preconditioners_along(optimizer, late)
        k0, k1, k2 = (0.1, 0.19, 0.271) if optimizer.name == "muon" else (1, 1, 1)  # 1 − 0.9ᵏ: the momentum of ones
        np.testing.assert_allclose(from_first, (k0 + k1) * p1.matrix + k2 * p2.matrix, rtol=1e-10)
        np.testing.assert_allclose(exact, k0 * p0.matrix + k1 * p1.matrix + k2 * p2.matrix, rtol=1e-10)


@every_optimizer
def test_without_any_gradient_everything_is_finite_and_nothing_moves(optimizer):
    params = {"w": jnp.zeros((4, 3)), "b": jnp.zeros(3)}
    gradients = [params, params]  # of zeros, too
    pairs = preconditioners_along(optimizer, gradients)
    moved, _ = optimizer.move.step(gradients[0], *pairs[0], optimizer.move.init(params))
    n = trace_of("exact", optimizer, gradients, pairs)
    inverse = linear.inverse(n)
    for leaf in jax.tree.leaves((pairs, n, inverse)):
        assert jnp.isfinite(leaf).all()
    for leaf in jax.tree.leaves(linear.apply(inverse, moved)):
        np.testing.assert_array_equal(leaf, 0.0)


@pytest.mark.parametrize("kind", [linear.Dense, lambda n: linear.OneSided(n, "left")], ids=["dense", "one side"])
def test_the_inverse_of_a_singular_trace_is_0_in_the_directions_that_did_not_move(kind):
    with float64():
        u = jnp.asarray([[0.6, 0.8], [-0.8, 0.6]])
        singular = u.T @ jnp.diag(jnp.asarray([2.0, 0.0])) @ u
        halved = u.T @ jnp.diag(jnp.asarray([0.5, 0.0])) @ u
        np.testing.assert_allclose(linear.inverse(kind(singular)).matrix, halved, atol=1e-12)
        np.testing.assert_array_equal(linear.inverse(kind(jnp.zeros((2, 2)))).matrix, 0.0)


@pytest.mark.parametrize("k", [2, 4])
def test_the_inverse_root_has_a_derivative_where_eigenvalues_are_equal(k):
    """Along a symmetric D, d (A + ε I)^(−1/k) is the difference quotient; A has eigenvalues 1, 1, 4."""
    with float64():
        basis = jnp.linalg.qr(random(3, 3))[0]
        a, direction = basis @ jnp.diag(jnp.asarray([1.0, 1.0, 4.0])) @ basis.T, random(3, 3, seed=1)
        direction = direction + direction.T
        f = lambda t: inverse_root(a + t * direction, 0.1, k)
        _, derivative = jax.jvp(f, (0.0,), (1.0,))
        np.testing.assert_allclose(derivative, (f(1e-5) - f(-1e-5)) / 2e-5, atol=1e-8)
        root = inverse_root(a, 0.1, k)
        np.testing.assert_allclose(jnp.linalg.matrix_power(root, k) @ (a + 0.1 * jnp.eye(3)), jnp.eye(3), atol=1e-12)


# --- a client with a constant gradient reports it

RATE, DECAY = 0.05, 0.3
SLOPES = {
    "tall": np.random.default_rng(4).normal(size=(4, 3)),
    "wide": np.random.default_rng(5).normal(size=(2, 3)),
    "bias": np.array([0.4, -2.0, 1.0]),
}
STARTS = {name: np.full(slope.shape, 2.0) for name, slope in SLOPES.items()}
OPTIONS = {
    "within_round": {"name": "cosine", "initial": 1.0, "final": 0.1},
    "clip_norm": 1.2,
    "weight_decay": DECAY,
}


def constant_gradient(steps=6):
    """One client whose gradient is SLOPES everywhere."""
    return ft.tasks.from_arrays(
        [{name: np.broadcast_to(slope, (steps, *slope.shape)) for name, slope in SLOPES.items()}],
        init=lambda key: jax.tree.map(jnp.asarray, STARTS),
        loss=lambda params, example: sum(jnp.vdot(params[name], example[name]) for name in SLOPES),
        batch_size=1,
        float64=True,
    )


def assert_reported(params, rounds, decay=DECAY):
    """`local` reports Δ N⁻¹ = η g, and η λ of the weight decay."""
    for name, x in STARTS.items():
        for _ in range(rounds):
            x = x - RATE * (SLOPES[name] + decay * x)
        np.testing.assert_allclose(params[name], x, rtol=1e-7)


CLIENTS = {"muon": ft.client.muon, "shampoo": ft.client.shampoo}
every_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


@every_client
def test_a_constant_gradient_is_reported_under_every_option_and_a_pull(client):
    method = ft.methods.fedprox(client(RATE, **OPTIONS), mu=2.0, correction="local")
    assert_reported(ft.train(constant_gradient(), method, rounds=1).params, 1)


@pytest.mark.parametrize("state", ["inherit", "sync"])
@every_client
def test_states_that_outlive_the_round_keep_the_trace_exact(client, state):
    method = ft.fedopt(client(RATE, **OPTIONS), correction="local", client_state=state)
    assert_reported(ft.train(constant_gradient(), method, rounds=3).params, 3)


def test_clipping_by_value_is_refused_where_a_trace_is_needed():
    client = ft.client.muon(RATE, clip_value=1.0)
    with pytest.raises(ValueError, match=r"clip_value has a factor per entry.*use clip_norm"):
        ft.train(constant_gradient(), ft.fedopt(client, correction="joint"), rounds=1)
    ft.train(constant_gradient(), ft.fedopt(client, correction="none"), rounds=1)


# --- fixed points

LOCAL_STEPS = [2, 30, 7]


def matrix_quadratics(shape):
    """Three clients with F_i(X) = ½ ⟨X − X_i, H_i (X − X_i) R_i⟩, and the minimiser of their mean."""
    rng, (rows, columns) = np.random.default_rng(0), shape
    h = [np.diag(rng.uniform(0.5, 6, rows)) for _ in LOCAL_STEPS]
    r = [np.diag(rng.uniform(0.5, 4, columns)) for _ in LOCAL_STEPS]
    minima = [2 * rng.normal(size=shape) for _ in LOCAL_STEPS]
    hessians = [np.kron(*pair) for pair in zip(h, r)]
    pulls = sum(hessian @ x.ravel() for hessian, x in zip(hessians, minima))
    minimiser = np.linalg.solve(sum(hessians), pulls).reshape(shape)

    def loss(params, example):
        from_minimum = params - example["minimum"]
        return 0.5 * jnp.vdot(from_minimum, example["h"] @ from_minimum @ example["r"])

    clients = [{"h": a[None], "r": b[None], "minimum": x[None]} for a, b, x in zip(h, r, minima)]
    init = lambda key: jnp.asarray(minimiser + 0.05)
    return ft.tasks.from_arrays(clients, init, loss, batch_size=1, float64=True), minimiser


def both_sides(rate):
    return ft.client.shampoo(rate, sides="both")


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("client", "shape", "correction", "trace", "at_1e_2", "at_1e_3"),
    [
        (ft.client.muon, (3, 2), "none", "exact", 4.444, 4.589),
        (ft.client.muon, (3, 2), "joint", "exact", 0.0463, 0.00451),
        (ft.client.muon, (3, 2), "local", "exact", 0.0463, 0.00451),
        pytest.param(ft.client.muon, (3, 2), "joint", "paper", 0.182, 0.176, marks=SLOW),
        pytest.param(ft.client.muon, (2, 3), "none", "exact", 5.164, 5.238, marks=SLOW),
        (ft.client.muon, (2, 3), "joint", "exact", 0.0214, 0.00204),
        (ft.client.shampoo, (3, 2), "none", "exact", 4.297, 4.346),
        (ft.client.shampoo, (3, 2), "joint", "exact", 0.0195, 0.00195),
        pytest.param(ft.client.shampoo, (2, 3), "none", "exact", 5.125, 5.168, marks=SLOW),
        pytest.param(ft.client.shampoo, (2, 3), "joint", "exact", 0.0143, 0.00143, marks=SLOW),
        pytest.param(both_sides, (3, 2), "none", "exact", 4.297, 4.346, marks=SLOW),
        pytest.param(both_sides, (3, 2), "joint", "exact", 0.0197, 0.00199, marks=SLOW),
    ],
)
def test_the_distance_from_the_minimum_falls_with_the_rate_if_and_only_if_corrected_by_the_exact_trace(
    client, shape, correction, trace, at_1e_2, at_1e_3
):
    """The table of docs/mathematics.md."""
    task, minimiser = matrix_quadratics(shape)
    method = lambda rate: ft.fedopt(client(rate), correction=correction, trace=trace)
    ends = [measured_fixed_point(task, method(rate), LOCAL_STEPS).params for rate in (1e-2, 1e-3)]
    found = [np.linalg.norm(end - minimiser) for end in ends]
    np.testing.assert_allclose(found, [at_1e_2, at_1e_3], rtol=0.01)


def test_no_gradient_weighs_more_than_all_in_theorem_3s_constants():
    task, minimiser = matrix_quadratics((3, 2))
    points = np.stack([minimiser, minimiser + 1])
    for optimizer in OPTIMIZERS.values():
        spread, largest_step = measured_constants(task, optimizer, points, local_steps=4)
        assert 1 <= spread < 4 and np.isfinite(largest_step)


# --- training


def two_layers():
    """Four clients, a small network with biases, classes of 6 features."""
    rng = np.random.default_rng(8)
    clients = [{"x": rng.normal(size=(12, 6)), "y": rng.integers(0, 3, 12)} for _ in range(4)]

    def init(key):
        one, two = jax.random.split(key)
        return {
            "one": {"kernel": 0.4 * jax.random.normal(one, (6, 5)), "bias": jnp.zeros(5)},
            "two": {"kernel": 0.4 * jax.random.normal(two, (5, 3)), "bias": jnp.zeros(3)},
        }

    def loss(params, example):
        hidden = jnp.tanh(example["x"] @ params["one"]["kernel"] + params["one"]["bias"])
        logits = hidden @ params["two"]["kernel"] + params["two"]["bias"]
        return -jax.nn.log_softmax(logits)[example["y"]]

    return ft.tasks.from_arrays(clients, init, loss, batch_size=4)


def assert_moved_and_finite(method):
    task = two_layers()
    before, after = task.init(jax.random.key(0)), ft.train(task, method, rounds=2, cohort=2).params
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after)):
        assert np.isfinite(new).all() and (np.asarray(new) != np.asarray(old)).any()


@pytest.mark.parametrize("correction", quick(["none", "local", "joint"], "joint"))
@every_client
def test_two_rounds_move_the_weights_and_leave_them_finite(client, correction):
    assert_moved_and_finite(ft.fedopt(client(0.01), correction=correction))


@pytest.mark.parametrize("method", [ft.methods.scaffold, ft.methods.mimelite], ids=["scaffold", "mimelite"])
def test_other_methods_take_muon(method):
    assert_moved_and_finite(method(ft.client.muon(0.01)))


def test_joint_sends_a_matrix_of_the_smaller_side_with_every_weight_matrix():
    sent = lambda client: ft.train(two_layers(), ft.fedopt(client), rounds=1, cohort=2).history["bytes_up"][0]
    update = 6 * 5 + 5 + 5 * 3 + 3  # two matrices, two biases
    assert sent(ft.client.adagrad(0.01)) == 2 * 4 * (update + update)  # two clients, 4 bytes per number
    assert sent(ft.client.muon(0.01)) == 2 * 4 * (update + 5 * 5 + 5 + 3 * 3 + 3)  # N⁻¹ is 5 × 5 and 3 × 3


def test_a_round_is_not_decomposed_and_the_refusal_names_the_cure(tmp_path):
    task, method = two_layers(), ft.fedopt(ft.client.muon(0.01))
    ft.train(task, method, rounds=1, out=tmp_path / "run")
    with pytest.raises(ValueError, match=r"'muon' has a matrix as preconditioner.*e.g. adam"):
        ft.diagnose(tmp_path / "run", task, method)

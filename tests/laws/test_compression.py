"""Compression: what is unbiased, what error feedback repairs, what a message costs, and that scales stay positive."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.compression import compressed, geometric_levels, message_bytes
from fedtrue.algorithm.interface import EXACT, OBJECTIVE, SCALE, Contribution
from fedtrue.engine.capacity import message_bytes as bytes_of
from fedtrue.precision import float64
from fedtrue.spec import FACTORIES

X = np.array([0.0, -3.0, 0.5, 0.01, 2.0, -0.2, 1.0, 0.3, -0.7, 0.05])
UNBIASED = ["random_k(share=0.3, feedback=false)", "qsgd(levels=2)", "quantize(bits=3)"]


def is_mean_of(samples, expected):
    """Within 4.5 standard errors in every coordinate; exact where the samples do not vary."""
    error = samples.std(axis=0) / np.sqrt(len(samples))
    return (np.abs(samples.mean(axis=0) - expected) <= 4.5 * error + 1e-6).all()


@pytest.mark.parametrize("name", UNBIASED)
def test_the_mean_over_keys_is_what_was_sent(name):
    encode = ft.from_spec(name, "compression").encode
    samples = np.asarray(jax.vmap(lambda key: encode(key, jnp.asarray(X)))(jax.random.split(jax.random.key(0), 20_000)))
    assert samples.std(axis=0).max() > 0.1 and is_mean_of(samples, X)


def test_a_scale_is_rounded_without_bias_and_no_entry_but_0_becomes_0():
    x = np.array([0.0, 1e-6, 3e-5, 0.02, 1.0, 40.0, 1e3])
    keys = jax.random.split(jax.random.key(0), 20_000)
    samples = np.asarray(jax.vmap(lambda key: geometric_levels(key, jnp.asarray(x)))(keys))
    assert is_mean_of(samples / np.where(x > 0, x, 1), x > 0)
    step = (1e3 / 1e-6) ** (1 / 254)  # 255 levels between the smallest and the largest
    assert (samples[:, 0] == 0).all() and (samples[:, 1:] > 0).all()
    assert (np.abs(np.log(samples[:, 1:] / x[1:])) <= np.log(step) * 1.01).all()


@pytest.mark.parametrize("name", UNBIASED)
def test_squares_of_large_entries_do_not_overflow(name):
    x = jnp.asarray([3e19, -1e19, 0.0], jnp.float32)  # ‖x‖² = 1e39 is above float32's 3.4e38
    sent = ft.from_spec(name, "compression").encode(jax.random.key(0), x)
    assert np.isfinite(sent).all() and sent[2] == 0


def test_a_scale_of_any_range_stays_finite():
    x = jnp.asarray([1e-32, 1.0, 1e10], jnp.float32)  # the largest divided by the smallest overflows
    assert np.isfinite(geometric_levels(jax.random.key(0), x)).all()


def test_what_compression_makes_infinite_is_dropped():
    """An update of 1e38 times 10 entries: each is finite, and the norm that qsgd sends is not."""
    rows = [{"x": np.zeros((1, 10), np.float32)}, {"x": np.full((1, 10), 3e38, np.float32)}]
    loss = lambda params, example: -jnp.sum(params * example["x"])
    two = ft.tasks.from_arrays(rows, lambda key: jnp.zeros(10), loss, batch_size=1)
    result = ft.train(two, ft.fedopt(ft.client.sgd(1.0), correction="none", compression="qsgd(levels=1)"), rounds=2)
    assert np.isfinite(result.params).all() and list(result.history["dropped"]) == [1, 1]


def test_a_scale_with_one_value_is_sent_exactly():
    for x in (jnp.full(5, 0.3), jnp.zeros(5)):
        assert (geometric_levels(jax.random.key(0), x) == x).all()


@pytest.mark.parametrize("name", [name for name in FACTORIES["compression"] if name != "none"])
def test_denominators_are_never_sparse_and_optimizer_states_never_change(name):
    key, value = jax.random.key(0), jnp.linspace(0.1, 1.0, 100)
    part = ft.from_spec(name, "compression")
    scale = compressed(part, key, Contribution(value, role=SCALE)).value
    assert (jnp.abs(scale / value - 1) < 0.01).all()  # 254 steps of 10^(1/254) − 1 = 0.0091
    assert (compressed(part, key, Contribution(value, role=EXACT)).value == value).all()


@pytest.mark.parametrize(
    "name, expected",
    [
        ("top_k(share=0.1)", 100 * (32 + 10) / 8),  # 2¹⁰ > 1000: 10 bits per index
        ("random_k(share=0.1)", 100 * 4),  # the server draws the indices itself
        ("qsgd(levels=16)", (1000 * (1 + 5) + 32) / 8),  # sign, 0 … 16, norm
        ("quantize(bits=8)", 1000 + 4),
        ("sign", 1000 / 8 + 4),
        ("none", 4000),
    ],
)
def test_bytes_are_those_of_packed_bits(name, expected):
    part = ft.from_spec(name, "compression")
    x = jax.ShapeDtypeStruct((10, 100), jnp.float32)
    assert message_bytes(part, {"update": Contribution(x)}) == expected
    scales = message_bytes(part, {"inverse_trace": Contribution(x, role=SCALE)})
    assert scales == (4000 if name == "none" else 1000 + 8)  # a byte each, smallest and largest


def test_an_account_of_what_clients_store_is_compressed_with_feedback_only():
    change = {"control_change": Contribution(jax.ShapeDtypeStruct((1000,), jnp.float32), OBJECTIVE)}
    assert message_bytes(ft.compression.quantize(8), change) == 4000
    assert message_bytes(ft.compression.sign(), change) == 129


def test_an_array_that_would_grow_is_sent_as_it_is():
    two = {"update": Contribution(jax.ShapeDtypeStruct((2,), jnp.float32))}
    assert message_bytes(ft.compression.top_k(share=0.5), two) == 33 / 8 + 7 / 8  # one value and one bit: 5 bytes
    assert message_bytes(ft.compression.qsgd(levels=2**31), two) == 8


def test_records_count_compressed_bytes():
    method = ft.fedopt(ft.client.adagrad(0.1), correction="joint", compression="top_k(share=0.25)")
    task = ft.tasks.quadratic(hessians=np.ones((3, 64)), minima=np.zeros((3, 64)))
    with float64():
        up = bytes_of(task, method).up
    update, scale = 16 * (64 + 6) / 8, 64 + 8  # 16 of 64 float64 with 6 bits per index; 1/N: a byte per entry
    assert up == (update + scale,)
    result = ft.train(task, method, rounds=2, local_steps=1)
    assert result.history["bytes_up"].tolist() == [3 * up[0]] * 2


COUNTER_EXAMPLE = {  # the clients' gradients in the first coordinate are large and cancel; the second is all that moves
    "hessians": [[1.0, 1.0], [1.0, 1.0]],
    "minima": [[10.0, 1.0], [-10.0, 1.0]],
    "start": [0.0, 0.0],
}


def distance(method, task=None, rounds=300, **arguments):
    task = task or ft.tasks.quadratic(**COUNTER_EXAMPLE)
    result = ft.train(task, method, rounds=rounds, **{"local_steps": 1, **arguments})
    return np.linalg.norm(result.params - task.minimiser)


def sgd(rate=0.1, **options):
    return ft.fedopt(ft.client.sgd(rate), **{"correction": "none", **options})


def test_error_feedback_converges_where_plain_top_k_never_moves():
    assert distance(sgd(0.01, compression="top_k(share=0.5, feedback=false)")) == 1.0  # the minimiser is (0, 1)
    method = sgd(0.01, compression="top_k(share=0.5)")
    assert distance(method, rounds=1000) < 0.15  # sent once it exceeds the first coordinate's η · 10 = 0.1


@pytest.mark.parametrize("name", ["top_k(share=0.5)", "sign", "random_k(share=0.5)"])
def test_with_feedback_joint_reaches_the_minimiser_of_equal_minima(name):
    """No update is left at the fixed point, so neither is a residual: the distance goes to 0, not to a ball."""
    task = ft.tasks.quadratic(hessians=[[1.0, 5.0], [4.0, 2.0]], minima=[[1.0, 2.0], [1.0, 2.0]])
    method = ft.fedopt(ft.client.adagrad(0.05, epsilon=1.0), correction="joint", compression=name)
    assert distance(method, task, rounds=400, local_steps=[1, 3]) < 1e-3


def test_scaffold_with_feedback_reaches_the_minimiser():
    """Control changes are compressed too; what was not sent of them is sent later, so c stays the mean of the c_i."""
    task = ft.tasks.quadratic(hessians=[[1.0, 5.0], [4.0, 2.0]], minima=[[2.0, 1.0], [-1.0, -2.0]])
    method = ft.methods.scaffold(ft.client.sgd(0.02), compression="top_k(share=0.5)")
    assert distance(method, task, rounds=800, local_steps=[2, 5]) < 1e-6


def test_none_is_the_method_without_compression_bit_for_bit():
    run = lambda method: ft.train(ft.tasks.quadratic(), method, rounds=3, local_steps=2).params
    assert (run(sgd(0.01)) == run(sgd(0.01, compression="none"))).all()


def test_what_would_not_hold_is_refused():
    with pytest.raises(ValueError, match="use sampling 'uniform', or a compression without feedback"):
        sgd(compression="sign", sampling="by_size")
    with pytest.raises(ValueError, match="use one with error feedback"):
        ft.train(ft.tasks.quadratic(), ft.methods.feddyn(ft.client.sgd(0.01), compression="qsgd"), rounds=1)
    with pytest.raises(ValueError, match="share must be a finite number above 0 and below 1"):
        sgd(compression="top_k(share=2)")

"""Mixed precision of a user's own model: products in bfloat16; weights, traces and sums in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft

RNG = np.random.default_rng(0)
CLIENTS = [
    {"x": RNG.normal(size=(n, 8)).astype(np.float32), "y": RNG.integers(0, 3, n).astype(np.int32)} for n in (9, 20)
]
SEEN = []  # types that the user's model was called with


def init(key):
    one, two = jax.random.split(key)
    return {"in": jax.random.normal(one, (8, 16)) / 3, "out": jax.random.normal(two, (16, 3)) / 4}


def logits(params, example):
    SEEN.append(tuple(str(array.dtype) for array in (params["in"], example["x"], example["y"])))
    return jax.nn.relu(example["x"] @ params["in"]) @ params["out"]


def own_task(**settings):
    return ft.tasks.from_arrays(
        CLIENTS,
        init,
        loss=lambda params, example: -jax.nn.log_softmax(logits(params, example))[example["y"]],
        metrics=lambda params, example: {"accuracy": logits(params, example).argmax() == example["y"]},
        test=CLIENTS,
        batch_size=5,
        **settings,
    )


def trained(**settings):
    task = own_task(**settings)
    SEEN.clear()  # building a task traces its loss, too
    return ft.train(task, ft.fedopt(ft.client.adam(0.01)), rounds=5)


def test_the_model_computes_in_bfloat16_and_the_result_is_that_of_float32_within_its_tolerance():
    exact, rounded = trained(), trained(precision="bfloat16")
    assert set(SEEN) == {("bfloat16", "bfloat16", "int32")}
    for name in exact.params:
        assert rounded.params[name].dtype == np.float32
        assert (rounded.params[name] != exact.params[name]).any()
        np.testing.assert_allclose(rounded.params[name], exact.params[name], atol=0.03)  # 8 bits: 2⁻⁸ of about 1
    np.testing.assert_allclose(rounded.history["loss"], exact.history["loss"], rtol=0.02)


def test_updates_smaller_than_a_bfloat16_can_hold_are_not_lost():
    """60 steps of 1e-4 on a weight of 1, whose neighbours in bfloat16 are 0.996 and 1.008: 1 − 0.006."""
    task = ft.tasks.from_arrays(
        [{"x": np.ones(20, np.float32)}],
        init=lambda key: jnp.ones(()),
        loss=lambda params, example: params * example["x"],
        batch_size=1,
        precision="bfloat16",
    )
    params = ft.train(task, ft.fedopt(ft.client.sgd(1e-4), correction="none"), rounds=3).params
    assert params.dtype == np.float32 and float(params) == pytest.approx(1 - 0.006, rel=1e-5)


def test_the_precision_is_recorded_and_that_of_an_own_task_is_float32_unless_given(tmp_path):
    for precision in (None, "bfloat16"):
        out = tmp_path / str(precision)
        ft.train(own_task(precision=precision), ft.fedopt(ft.client.sgd(0.1)), rounds=1, out=out)
        assert ft.load_run(out).config["precision"] == (precision or "float32")


def test_a_wrong_precision_is_refused():
    with pytest.raises(ValueError, match=r"precision 'bfloat' is not known \(did you mean 'bfloat16'"):
        own_task(precision="bfloat")
    with pytest.raises(ValueError, match="'quadratic' computes in float64: leave precision out"):
        ft.tasks.with_precision(ft.tasks.quadratic(), "bfloat16")
    with pytest.raises(ValueError, match="has precision 'bfloat16' already: set it once"):
        ft.tasks.with_precision(own_task(precision="bfloat16"), "float32")


def test_weights_that_are_coarse_themselves_are_refused_with_the_cure():
    """0.999 is 1 in bfloat16: Adam's average of squares would stay 0."""
    with pytest.raises(ValueError, match='float32, and give precision="bfloat16"'):
        ft.tasks.from_arrays(CLIENTS, lambda key: jnp.zeros(8, jnp.bfloat16), loss=lambda w, example: example["x"] @ w)

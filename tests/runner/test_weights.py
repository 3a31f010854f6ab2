"""Weights go out of a model and back into one of the same kind, and into no other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedtrue as ft
from tests.models.frameworks import FRAMEWORKS, HOLDING, INPUTS, Equinox, Linen, Nnx, haiku

X = np.random.default_rng(3).normal(size=(4, INPUTS)).astype(np.float32)
CLIENTS = [{"x": X, "y": np.array([0, 1, 2, 2])}]


def outputs(name, model, weights=None):
    if name == "equinox":
        return jax.vmap(lambda x: model(x, key=jax.random.key(0)))(X)
    if name == "nnx":
        return model(X)
    if name == "linen":
        return model.apply({"params": weights}, X, train=False)
    return model.apply(weights, None, X, is_training=False)


@pytest.mark.parametrize("name", HOLDING)
def test_a_module_that_holds_its_weights_is_filled_and_ready_to_call(name, tmp_path):
    one, other = HOLDING[name](seed=1), HOLDING[name](seed=2)
    before = np.asarray(outputs(name, other))
    ft.save_weights(tmp_path / "one.safetensors", one)
    filled = ft.load_weights(tmp_path / "one.safetensors", like=other)
    assert type(filled) is type(other)
    assert_array_equal(outputs(name, filled), outputs(name, one))
    assert_array_equal(outputs(name, other), before)  # it is not changed


@pytest.mark.parametrize("name, model", [("linen", Linen()), ("haiku", haiku())])
def test_a_tree_of_weights_comes_back_in_the_same_structure(name, model, tmp_path):
    init = lambda seed: (
        model.init(jax.random.key(seed), X, train=False)["params"]
        if name == "linen"
        else model.init(jax.random.key(seed), X, is_training=False)
    )
    ft.save_weights(tmp_path / "one.safetensors", init(1))
    filled = ft.load_weights(tmp_path / "one.safetensors", like=init(2))
    assert jax.tree.structure(filled) == jax.tree.structure(init(2))
    assert_array_equal(outputs(name, model, filled), outputs(name, model, init(1)))


def test_the_variables_of_linen_are_filled_as_its_params_are(tmp_path):
    variables = Linen().init(jax.random.key(1), X, train=False)
    ft.save_weights(tmp_path / "one.safetensors", variables["params"])
    filled = ft.load_weights(tmp_path / "one.safetensors", like=variables)
    assert_array_equal(filled["params"]["Dense_0"]["kernel"], variables["params"]["Dense_0"]["kernel"])


@pytest.mark.parametrize("name", HOLDING)
def test_a_result_and_its_folder_fill_a_model_alike(name, tmp_path):
    model = HOLDING[name]()
    task = ft.tasks.supervised(model, CLIENTS, test=CLIENTS)
    result = ft.train(task, ft.methods.fedavg(client_rate=0.1), rounds=2, lanes=1, out=tmp_path / "run")
    from_result, from_folder = ft.load_weights(result, like=model), ft.load_weights(tmp_path / "run", like=model)
    assert_array_equal(outputs(name, from_result), outputs(name, from_folder))
    labels = CLIENTS[0]["y"]
    expected = -np.asarray(jax.nn.log_softmax(outputs(name, from_result)))[np.arange(4), labels].mean()
    assert result.summary["final"]["test"]["loss"] == pytest.approx(expected, rel=1e-5)
    assert_allclose(
        ft.evaluate(task, ft.load_run(tmp_path / "run").params)["test"].metrics["loss"], expected, rtol=1e-5
    )


@pytest.mark.parametrize(
    "like, message",
    [
        ({"w": np.zeros(3), "c": np.zeros(1)}, "model.safetensors has no weights 'c': is it of another model"),
        ({"w": np.zeros(3)}, "model.safetensors has weights 'b', which the model does not have"),
        ({"w": np.zeros(4), "b": np.zeros(1)}, r"has 'w' of shape \(3,\), the model \(4,\)"),
        (Linen(), r"a flax Linen holds no weights|holds no weights: give a tree of weights such as model.init"),
        (haiku(), "holds no weights: give a tree of weights such as model.init"),
    ],
)
def test_weights_of_another_model_are_refused(like, message, tmp_path):
    ft.save_weights(tmp_path / "model.safetensors", {"w": np.zeros(3), "b": np.zeros(1)})
    with pytest.raises(ValueError, match=message):
        ft.load_weights(tmp_path, like=like)


def test_a_file_that_does_not_exist_or_is_no_safetensors_file_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"model.safetensors does not exist: a run folder has it once its run has ended"
    ):
        ft.load_weights(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is not a safetensors file"):
        ft.load_weights(tmp_path)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, jnp.bfloat16, np.int8, np.uint32, bool])
def test_arrays_of_every_type_come_back_as_they_were(dtype, tmp_path):
    saved = {"w": np.asarray(jnp.arange(6).reshape(2, 3) % 2).astype(dtype), "empty": np.zeros((0, 2), dtype)}
    ft.save_weights(tmp_path / "w.safetensors", saved)
    loaded = ft.load_weights(tmp_path / "w.safetensors")
    for name in saved:
        assert loaded[name].dtype == dtype
        assert_array_equal(loaded[name], saved[name])


def test_weights_keep_the_type_of_the_model_they_are_loaded_into(tmp_path):
    ft.save_weights(tmp_path / "w.safetensors", {"w": np.ones(3)})
    assert ft.load_weights(tmp_path / "w.safetensors", like={"w": np.zeros(3, np.float32)})["w"].dtype == np.float32


def test_frameworks_name_their_weights_as_they_are_saved(tmp_path):
    ft.save_weights(tmp_path / "w.safetensors", Nnx())
    assert set(ft.load_weights(tmp_path / "w.safetensors")) == {"first", "last"}
    ft.save_weights(tmp_path / "w.safetensors", Equinox())
    loaded = ft.load_weights(tmp_path / "w.safetensors")
    assert {f"{layer}/{name}" for layer in loaded for name in loaded[layer]} == set(
        FRAMEWORKS["equinox"].names.values()
    )

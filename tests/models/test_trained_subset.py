"""Only the selected weights are trained, sent and stored; the others stay as they are, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from numpy.testing import assert_allclose, assert_array_equal

import fedtrue as ft
from fedtrue.engine.capacity import lane_bytes, memory_bytes, message_bytes
from fedtrue.federation import batch, batches_of, federation_of
from fedtrue.models.lora import lora_subset, matrix_shape
from fedtrue.models.named_leaves import named_leaves
from fedtrue.models.trained_subset import names_matching, trained_subset
from tests.models.frameworks import CLASSES, HIDDEN, INPUTS, Linen

RNG = np.random.default_rng(2)
NAMES = ["Conv_0/kernel", "Dense_0/bias", "Dense_0/kernel", "Dense_01/kernel"]
CLIENTS = [{"x": RNG.normal(size=(n, INPUTS)).astype(np.float32), "y": RNG.integers(0, CLASSES, n)} for n in (3, 6)]
LAST = HIDDEN * CLASSES + CLASSES  # weights of the last layer


@pytest.mark.parametrize(
    "trainable, chosen",
    [
        ("Dense_0", NAMES[1:3]),  # a layer, and not another one whose name begins alike
        (["Dense_0/bias", "Conv_0"], NAMES[:2]),
        ("*/kernel", [NAMES[0], *NAMES[2:]]),
        (lambda name: name.endswith("bias"), NAMES[1:2]),
    ],
)
def test_weights_are_selected_by_layer_by_glob_or_by_a_function_of_the_name(trainable, chosen):
    assert names_matching(NAMES, trainable) == set(chosen)


@pytest.fixture(scope="module")
def frozen_run(tmp_path_factory):
    """(model, task, result, folder) of a run that trains the last layer only; SCAFFOLD's clients keep a memory."""
    model, folder = Linen(), tmp_path_factory.mktemp("frozen") / "run"
    task = ft.tasks.supervised(model, CLIENTS, trainable=["Dense_1"], test=CLIENTS, batch_size=4)
    result = ft.train(task, ft.methods.scaffold(ft.client.sgd(0.1)), rounds=2, seed=7, lanes=1, out=folder)
    return model, task, result, folder


def test_frozen_weights_are_bit_identical_and_in_the_final_model(frozen_run):
    model, _, result, folder = frozen_run
    variables = model.init(jax.random.key(0), CLIENTS[0]["x"][:1], train=False)
    trained = ft.load_weights(folder, like=variables)["params"]
    assert_array_equal(trained["Dense_0"]["kernel"], variables["params"]["Dense_0"]["kernel"])
    assert_array_equal(trained["Dense_0"]["bias"], variables["params"]["Dense_0"]["bias"])
    assert not np.array_equal(trained["Dense_1"]["kernel"], variables["params"]["Dense_1"]["kernel"])
    assert_array_equal(trained["Dense_1"]["kernel"], result.params["Dense_1"]["kernel"])
    assert result.params["Dense_0"] == {"kernel": None, "bias": None}


def test_messages_lanes_client_memory_and_checkpoints_count_trained_weights_only(frozen_run):
    _, task, result, folder = frozen_run
    method = ft.fedopt(ft.client.sgd(0.1), correction="none")
    assert message_bytes(task, method) == ((4 * LAST,), (4 * LAST,), (0,))  # float32; no scores
    assert lane_bytes(task, method) == 2 * 4 * LAST  # weights and a gradient
    assert memory_bytes(task, ft.methods.scaffold(ft.client.sgd(0.1))) == 4 * LAST  # a control variate
    assert result.history["bytes_down"][0] == 2 * 2 * 4 * LAST  # two clients; weights and the server's variate
    (newest,) = folder.glob("checkpoints/*2.safetensors")
    assert not [name for name in safetensors.numpy.load_file(newest) if "Dense_0" in name]


def test_frozen_weights_are_an_argument_of_the_compiled_program_and_not_part_of_its_text(frozen_run):
    _, task, _, _ = frozen_run
    federation = federation_of(task)
    of_client = batch(federation, batches_of(federation, 0, 0, 0), 0)
    traced = jax.make_jaxpr(lambda *arguments: task.loss(*arguments)[0])(task.init(jax.random.key(0)), of_client)
    assert of_client["constants"] is task.constants
    assert task.constants["Dense_0"]["kernel"].shape == (INPUTS, HIDDEN)
    assert not [constant for constant in traced.consts if np.size(constant) > 1]


def test_the_loss_is_that_of_the_complete_model(frozen_run):
    model, task, result, folder = frozen_run
    evaluated = ft.evaluate(task, result.params)["test"].metrics
    logits = model.apply({"params": result.weights}, np.concatenate([c["x"] for c in CLIENTS]), train=False)
    labels = np.concatenate([client["y"] for client in CLIENTS])
    expected = -np.asarray(jax.nn.log_softmax(logits))[np.arange(len(labels)), labels].mean()
    assert evaluated["loss"] == pytest.approx(expected, rel=1e-5)
    assert ft.evaluate(task, ft.load_run(folder).params)["test"].metrics == evaluated  # complete weights do as well


def test_everything_is_trained_without_a_choice():
    subset = trained_subset(lambda key: {"w": jnp.zeros(2)})
    assert subset.others is None
    assert subset.complete({"w": 1}) == {"w": 1}


# --- LoRA -------------------------------------------------------------------------------------------------------------

M, N, RANK, ALPHA, RATE = 4, 3, 2, 6.0, 0.5
W = RNG.normal(size=(M, N)).astype(np.float32)


def lora_task(clients, **choice):
    model = (lambda key: {"w": jnp.asarray(W), "b": jnp.zeros(N)}, lambda weights, x: x @ weights["w"] + weights["b"])
    return ft.tasks.supervised(model, clients, loss="mse", trainable=ft.tasks.lora(RANK, ALPHA, **choice))


def test_a_step_of_lora_is_that_of_the_low_rank_factors():
    x, y = RNG.normal(size=(5, M)).astype(np.float32), RNG.normal(size=(5, N)).astype(np.float32)
    task = lora_task([{"x": x, "y": y}], on="w")
    a = np.asarray(task.init(jax.random.key(0))["adapters"]["w"]["a"])
    result = ft.train(task, ft.fedopt(ft.client.sgd(RATE), correction="none"), rounds=1)
    gradient = 2 * x.T @ (x @ W - y) / (5 * N)  # of the mean over 5 examples and N outputs, at W, as B = 0
    scale = ALPHA / RANK
    b = -RATE * scale * a.T @ gradient  # ∂/∂B = s Aᵀ ∂/∂W; A does not move, as ∂/∂A = s ∂/∂W Bᵀ = 0
    assert_allclose(result.params["adapters"]["w"]["a"], a, atol=1e-7)
    assert_allclose(result.params["adapters"]["w"]["b"], b, rtol=1e-4, atol=1e-6)
    assert_allclose(result.weights["w"], W + scale * a @ b, rtol=1e-4, atol=1e-5)
    assert_array_equal(result.weights["b"], 0)
    assert result.history["bytes_up"][0] == 4 * RANK * (M + N)


def test_lora_trains_other_weights_as_they_are():
    task = lora_task([{"x": np.ones((2, M), np.float32), "y": np.ones((2, N), np.float32)}], also="b")
    assert set(named_leaves(task.init(jax.random.key(0)))) == {"adapters/w/a", "adapters/w/b", "also/b"}


def test_lora_starts_from_the_model_as_it_is():
    init = lambda key: {"conv": jax.random.normal(key, (3, 3, 16, 32)), "bias": jnp.ones(32)}
    subset = lora_subset(init, ft.tasks.lora(2))
    params = subset.init(jax.random.key(3))
    assert params["adapters"]["conv"]["a"].shape == (144, 2) and params["adapters"]["conv"]["b"].shape == (2, 32)
    for name, leaf in named_leaves(init(jax.random.key(0))).items():
        assert_array_equal(subset.complete(params)[name], leaf)


@pytest.mark.parametrize(
    "shape, matrix",
    [((7, 5), (7, 5)), ((64, 4, 16), (64, 64)), ((4, 16, 64), (64, 64)), ((3, 3, 16, 32), (144, 32))],
)
def test_an_array_with_more_axes_is_the_matrix_with_the_fewest_adapter_weights(shape, matrix):
    assert matrix_shape(shape) == matrix


def test_adapters_of_coarse_weights_are_float32():
    """Large models are kept in bfloat16; what is trained is not."""
    subset = lora_subset(lambda key: {"w": jnp.ones((8, 6), jnp.bfloat16)}, ft.tasks.lora(2))
    trained = subset.init(jax.random.key(0))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(trained)} == {"float32"}
    assert subset.complete(trained)["w"].dtype == jnp.bfloat16


def test_lora_without_matrices_or_without_a_rank_is_refused():
    with pytest.raises(ValueError, match="lora: rank is 0: choose at least 1"):
        ft.tasks.lora(0)
    with pytest.raises(ValueError, match="no weights with two or more axes are selected"):
        lora_subset(lambda key: {"b": jnp.zeros(3)}, ft.tasks.lora(2))

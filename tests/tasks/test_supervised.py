"""A user's model trains as the same task written by hand, and what does not fit is refused before compilation."""

from dataclasses import replace

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

import fedtrue as ft
from fedtrue.models.named_leaves import named_leaves
from tests.models.frameworks import CLASSES, FRAMEWORKS, INPUTS, WEIGHTS, Linen, by_hand, pair

RNG = np.random.default_rng(1)
METHOD = ft.fedopt(ft.client.adagrad(0.1))


def client(examples, inputs=INPUTS, classes=CLASSES):
    return {"x": RNG.normal(size=(examples, inputs)).astype(np.float32), "y": RNG.integers(0, classes, examples)}


CLIENTS = {"ann": client(5), "bob": client(9), "cyd": client(2)}  # batches of 4: with padding


def start(framework):
    """The shared weights as this library nests them."""
    tree = {}
    for name, array in framework.arrays(WEIGHTS).items():
        *folders, last = name.split("/")
        branch = tree
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[last] = array
    return tree


def task_of(name, rate=0.0, **arguments):
    framework = FRAMEWORKS[name]
    return ft.tasks.supervised(
        framework.model(rate), CLIENTS, **{"batch_size": 4, "params": start(framework), **arguments}
    )


def batch_of(task, examples=4, seed=0):
    rows = {column: jnp.asarray(values[:examples]) for column, values in task.train.columns.items()}
    return {**rows, "mask": jnp.ones(examples), "key": jax.random.key(seed)}


@pytest.fixture(scope="module")
def trained_by_hand():
    """The weights after three rounds of the task from arrays and the loss of one example."""

    def loss(weights, example):
        return -jax.nn.log_softmax(by_hand(weights, example["x"]))[example["y"]]

    init = lambda key: jax.tree.map(jnp.asarray, WEIGHTS)
    return ft.train(ft.tasks.from_arrays(CLIENTS, init, loss, batch_size=4), METHOD, rounds=3, lanes=1).params


@pytest.mark.parametrize("name", ["linen", "nnx", "equinox", "haiku", "pair"])
def test_every_library_trains_to_the_weights_of_the_task_written_by_hand(name, trained_by_hand):
    result = ft.train(task_of(name), METHOD, rounds=3, lanes=1)
    expected = FRAMEWORKS[name].arrays(trained_by_hand)
    found = named_leaves(result.params)
    assert found.keys() == expected.keys()
    for leaf in expected:
        assert_allclose(found[leaf], expected[leaf], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_dropout_depends_on_the_key_in_training_and_is_off_in_evaluation(name):
    task, without = task_of(name, rate=0.5), task_of(name)
    params = task.init(jax.random.key(0))
    losses = [float(jax.jit(task.loss)(params, batch_of(task, seed=seed))[0]) for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    evaluated = [float(jax.jit(task.metrics)(params, batch_of(task, seed=seed))["loss"][0]) for seed in (0, 1)]
    expected = float(jax.jit(without.metrics)(params, batch_of(task))["loss"][0])
    assert evaluated == pytest.approx([expected, expected], rel=1e-6)


def test_a_pair_may_be_told_whether_it_trains():
    model = (lambda key: jnp.ones(()), lambda weight, x, train: jnp.where(train, weight, 2 * weight) * x.sum(axis=1))
    task = ft.tasks.supervised(model, [{"x": np.ones((1, 3)), "y": np.zeros(1)}], loss="mse")
    assert float(task.loss(jnp.ones(()), batch_of(task, 1))[0]) == 9  # 3²
    assert float(task.metrics(jnp.ones(()), batch_of(task, 1))["loss"][0]) == 36  # 6²


def test_padding_changes_neither_the_loss_nor_its_gradient():
    task = task_of("linen")
    params, batch = task.init(jax.random.key(0)), batch_of(task, 3)
    padded = {column: jnp.concatenate([batch[column], 7 + batch[column][:1]]) for column in ("x", "y")}
    padded |= {"mask": jnp.array([1.0, 1, 1, 0]), "key": batch["key"]}
    grad = jax.grad(lambda *arguments: task.loss(*arguments)[0])
    assert float(task.loss(params, padded)[0]) == pytest.approx(float(task.loss(params, batch)[0]), rel=1e-6)
    for a, b in zip(jax.tree.leaves(grad(params, padded)), jax.tree.leaves(grad(params, batch))):
        assert_allclose(a, b, atol=1e-6)


# --- losses and metrics -----------------------------------------------------------------------------------------------

CROSS_ENTROPIES = {
    "of one example": lambda output, target: -jax.nn.log_softmax(output)[target],
    "of a batch, one per example": lambda outputs, targets: (
        -jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[:, None], axis=1)[:, 0]
    ),
    "of a batch, the mean": lambda outputs, targets: (
        -jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[:, None], axis=1).mean()
    ),
    "optax": optax.softmax_cross_entropy_with_integer_labels,
    "of one example, with a key": lambda output, target, key: -jax.nn.log_softmax(output)[target],
    "a key by name": lambda outputs, targets, *, key=None: (
        -jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[:, None], axis=1).mean()
    ),
}


@pytest.mark.parametrize("form", CROSS_ENTROPIES)
def test_a_loss_may_be_of_one_example_or_of_a_batch_with_or_without_a_key(form):
    named, own = task_of("pair"), task_of("pair", loss=CROSS_ENTROPIES[form])
    params = named.init(jax.random.key(0))
    batch = {**batch_of(named), "mask": jnp.array([1.0, 1, 1, 0])}
    assert float(own.loss(params, batch)[0]) == pytest.approx(float(named.loss(params, batch)[0]), rel=1e-5)


def test_a_loss_with_a_key_gets_another_one_per_example_and_none_in_evaluation():
    def noisy(output, target, key):
        return jnp.float32(0) if key is None else jax.random.uniform(key)

    task = task_of("pair", loss=noisy, metrics=())
    params = task.init(jax.random.key(0))
    total = lambda seed: float(task.loss(params, batch_of(task, seed=seed))[0])
    assert total(0) == total(0) != total(1)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), 1), 4)
    assert total(0) == pytest.approx(float(jax.vmap(jax.random.uniform)(keys).mean()))
    assert task.metrics(params, batch_of(task))["loss"][0] == 0


def test_labels_of_a_sequence_are_averaged_over_positions_without_the_ignored_ones():
    clients = [{"x": np.zeros((2, 3, 1), np.float32), "y": np.array([[0, 1, -1], [1, -1, -1]])}]
    logits = jnp.log(jnp.array([0.25, 0.75]))
    model = (lambda key: logits, lambda weights, x: jnp.broadcast_to(weights, (*x.shape[:2], 2)))
    task = ft.tasks.supervised(model, clients, ignored_label=-1)
    (total, count), accuracy = task.loss(logits, batch_of(task, 2))[1]["loss"], task.metrics(logits, batch_of(task, 2))
    assert count == 3
    assert float(total) == pytest.approx(-np.log(0.25) - 2 * np.log(0.75), rel=1e-5)  # labels 0, 1 and 1
    assert [float(part) for part in accuracy["accuracy"]] == [2, 3]  # class 1 is the likely one


def test_mean_squared_error_takes_outputs_with_a_last_axis_of_one():
    clients = [{"x": np.ones((3, 2), np.float32), "y": np.array([1.0, 2.0, 4.0])}]
    model = (lambda key: jnp.zeros((2, 1)), lambda weights, x: x @ weights)
    task = ft.tasks.supervised(model, clients, loss="mse")
    loss, sums = task.loss(jnp.zeros((2, 1)), batch_of(task, 3))
    assert float(loss) == 7  # (1 + 4 + 16) / 3
    assert set(sums) == set(task.metrics(jnp.zeros((2, 1)), batch_of(task, 3))) == {"loss"}


def test_several_labels_per_example_have_a_loss_and_an_accuracy():
    clients = [{"x": np.zeros((2, 1), np.float32), "y": np.array([[1, 0], [1, 1]])}]
    model = (lambda key: jnp.array([1.0, -1.0]), lambda weights, x: jnp.broadcast_to(weights, (len(x), 2)))
    task = ft.tasks.supervised(model, clients, loss="binary_cross_entropy", metrics=["accuracy"])
    found = task.metrics(task.init(jax.random.key(0)), batch_of(task, 2))
    assert [float(part) for part in found["accuracy"]] == [1.5, 2]  # 2 of 2 and 1 of 2 labels
    assert float(found["loss"][0]) == pytest.approx(np.log1p(np.exp(-1)) * 1.5 + np.log1p(np.exp(1)) * 0.5, rel=1e-5)


def test_metrics_are_named_ones_and_functions():
    def margin(output, target):
        return output[target] - output.max()

    task = task_of("pair", metrics=["accuracy", "top_2_accuracy", margin], higher_is_better=["margin"])
    logits = np.asarray(by_hand(WEIGHTS, task.train.columns["x"][:4]))
    labels = task.train.columns["y"][:4]
    found = {name: float(total) for name, (total, _) in task.metrics(WEIGHTS, batch_of(task)).items()}
    rank = (logits > logits[np.arange(4), labels][:, None]).sum(axis=1)
    assert (found["accuracy"], found["top_2_accuracy"]) == ((rank == 0).sum(), (rank < 2).sum())
    assert found["margin"] == pytest.approx((logits[np.arange(4), labels] - logits.max(axis=1)).sum(), rel=1e-5)
    assert task.metric_kinds["top_2_accuracy"].percent and not task.metric_kinds["margin"].percent


def test_several_columns_are_arguments_of_the_model():
    clients = [{"a": np.ones((2, 3)), "b": np.full((2, 1), 2.0), "y": np.array([6.0, 6.0])}]
    model = (lambda key: jnp.ones(()), lambda w, a, b: w * (a * b).sum(axis=1))
    task = ft.tasks.supervised(model, clients, inputs=["a", "b"], loss="mse")
    assert float(task.loss(jnp.ones(()), batch_of(task, 2))[0]) == 0  # 3 × 2 = 6


# --- leaves that are not trained --------------------------------------------------------------------------------------


class Permuted(eqx.Module):
    order: jax.Array  # integers
    linear: eqx.nn.Linear

    def __call__(self, x):
        return self.linear(x[self.order])


def test_leaves_that_are_not_of_floating_point_are_carried_along_untouched(tmp_path):
    model = Permuted(jnp.arange(INPUTS)[::-1], eqx.nn.Linear(INPUTS, CLASSES, key=jax.random.key(0)))
    task = ft.tasks.supervised(model, CLIENTS, batch_size=4)
    result = ft.train(task, METHOD, rounds=2, lanes=1, out=tmp_path / "run")
    assert result.params.order is None  # neither trained nor counted
    assert result.history["bytes_down"][0] == 3 * 4 * (INPUTS * CLASSES + CLASSES)  # 3 clients, float32
    trained = ft.load_weights(tmp_path / "run", like=model)
    assert_array_equal(trained.order, model.order)
    assert not np.array_equal(trained.linear.weight, model.linear.weight)


def test_batch_statistics_among_the_weights_of_from_arrays_are_refused():
    init = lambda key: {"params": {"w": jnp.zeros(2)}, "batch_stats": {"mean": jnp.zeros(2)}}
    with pytest.raises(ValueError, match=r"keeps state .*batch_stats.* use GroupNorm"):
        ft.tasks.from_arrays(CLIENTS, init, lambda params, example: 0.0)


class LinenBatchNorm(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        return nn.Dense(CLASSES)(nn.BatchNorm(use_running_average=not train)(x))


class NnxBatchNorm(nnx.Module):
    def __init__(self):
        self.norm, self.last = nnx.BatchNorm(INPUTS, rngs=nnx.Rngs(0)), nnx.Linear(INPUTS, CLASSES, rngs=nnx.Rngs(1))

    def __call__(self, x):
        return self.last(self.norm(x))


class NnxCounter(nnx.Module):
    def __init__(self):
        self.calls, self.last = nnx.Variable(jnp.zeros(())), nnx.Linear(INPUTS, CLASSES, rngs=nnx.Rngs(1))

    def __call__(self, x):
        self.calls[...] = self.calls[...] + 1
        return self.last(x)


def haiku_batch_norm(x, is_training):
    return hk.Linear(CLASSES)(hk.BatchNorm(True, True, 0.9)(x, is_training))


def equinox_batch_norm():
    layers = [eqx.nn.BatchNorm(INPUTS, "batch", mode="batch"), eqx.nn.Linear(INPUTS, CLASSES, key=jax.random.key(0))]
    return eqx.nn.make_with_state(eqx.nn.Sequential)(layers)[0]


@pytest.mark.parametrize(
    "model",
    [
        LinenBatchNorm(),
        NnxBatchNorm(),
        NnxCounter(),
        hk.transform_with_state(haiku_batch_norm),
        hk.transform(haiku_batch_norm),
        equinox_batch_norm(),
        (lambda key: {"batch_stats": jnp.zeros(3)}, lambda weights, x: x[:, :3]),
    ],
    ids=["linen", "nnx", "nnx variable", "haiku with state", "haiku", "equinox", "pair"],
)
def test_a_model_that_keeps_state_is_refused_with_the_cure(model):
    with pytest.raises(ValueError, match=r"^the model keeps state between batches.*GroupNorm") as raised:
        ft.tasks.supervised(model, CLIENTS)
    assert "\n" not in str(raised.value)


# --- bad input --------------------------------------------------------------------------------------------------------


class DropoutWithoutMode(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(CLASSES)(nn.Dropout(0.5, deterministic=False)(x))


class NnxNoise(nnx.Module):
    def __init__(self):
        self.rngs, self.last = nnx.Rngs(0), nnx.Linear(INPUTS, CLASSES, rngs=nnx.Rngs(1))

    def __call__(self, x):
        return self.last(x + jax.random.normal(self.rngs.noise(), x.shape))


def vector_loss(outputs, targets):
    return jnp.zeros((len(outputs), 7)) + outputs.sum()


WRONG = {
    "a class": ({"model": Linen}, r"the model is the class Linen: give an instance, Linen\(…\)"),
    "no model": ({"model": "resnet"}, r"the model is a builtins.str: give a flax.linen, .* or a pair \(init, apply\)"),
    "a missing column": ({"inputs": "image"}, "clients: there is no column 'image'; there are 'x', 'y'"),
    "an unknown loss": (
        {"loss": "crossentropy"},
        r"loss 'crossentropy' is not known \(did you mean 'cross_entropy'\?",
    ),
    "an unknown metric": ({"metrics": ["f1"]}, "metric 'f1' is not known: choose accuracy"),
    "a metric without a name": ({"metrics": [lambda o, t: o]}, "a metric has no name: give metrics={'name'"),
    "a metric without a direction": ({"metrics": {"f1": lambda o, t: o.sum()}}, "whether a higher 'f1' is better"),
    "too many classes asked for": ({"metrics": ["top_4_accuracy"]}, "'top_4_accuracy': the model has 3 outputs"),
    "a vector as loss": (
        {"loss": vector_loss},
        r"loss cannot be .* returns shape \(batch, 7\): return one number per",
    ),
    "a loss that fails without its key": (
        {"loss": lambda output, target, key: jax.random.uniform(key)},
        "the loss fails when its key is None, as it is in evaluation",
    ),
    "labels as floats": (
        {"clients": [{"x": CLIENTS["ann"]["x"], "y": np.ones(5)}]},
        "labels 'y' of shape .* and type float32: give labels 0, 1, … as integers",
    ),
    "labels outside the classes": (
        {"clients": {"ann": CLIENTS["ann"], "eve": {"x": CLIENTS["bob"]["x"][:2], "y": np.array([0, 3])}}},
        "client 'eve' has label 3 in column 'y': the model has 3 outputs, so labels go from 0 to 2",
    ),
    "labels outside the classes in the test set": (
        {"test": {"eve": {"x": CLIENTS["bob"]["x"][:2], "y": np.array([0, -1])}}},
        "client 'eve' has label -1 in column 'y'",
    ),
    "one-hot labels": (
        {"clients": [{"x": CLIENTS["ann"]["x"], "y": np.eye(5, 3)}]},
        r"output of shape \(batch, 3\) does not match the labels 'y' of shape \(batch, 3\).* use loss='binary_cross",
    ),
    "targets of another shape": (
        {"clients": [{"x": CLIENTS["ann"]["x"], "y": np.ones((5, 2))}], "loss": "mse"},
        r"output of shape \(batch, 3\) does not match the targets 'y' of shape \(batch, 2\)",
    ),
    "one output": (
        {"model": (lambda key: jnp.zeros((INPUTS, 1)), lambda w, x: x @ w)},
        "the model has 1 output: cross_entropy needs one per class",
    ),
    "inputs of another size": (
        {"clients": [client(4, inputs=7)], "params": WEIGHTS},
        r"the model cannot be applied to a batch of inputs 'x' \(7,\): ",
    ),
    "inputs of the wrong rank": (
        {"model": nn.Sequential([nn.Conv(2, (3, 3)), lambda x: x.reshape(len(x), -1)[:, :3]])},
        r"the model's output|the model cannot be (initialised|applied)",
    ),
    "a model of one example": (
        {"model": (lambda key: jnp.zeros((INPUTS, 3)), lambda w, x: x[0] @ w)},
        r"output has shape \(3,\) for a batch .* its first axis must count the examples",
    ),
    "dropout that cannot be switched off": (
        {"model": DropoutWithoutMode()},
        r"the model cannot be (initialised|evaluated)",
    ),
    "noise in evaluation": (
        {"model": NnxNoise()},
        r"the model cannot be evaluated without a random key: .*: it draws random numbers after .eval\(\)",
    ),
    "NaN": (
        {"clients": {"ann": CLIENTS["ann"], "eve": {"x": np.full((2, INPUTS), np.nan), "y": np.zeros(2, int)}}},
        "column 'x' of client 'eve' is NaN in example 0: fill it in or leave the example out",
    ),
    "strings": ({"clients": [{"x": np.array(["a", "b"]), "y": np.zeros(2)}]}, "column 'x' holds strings such as 'a'"),
    "columns of unequal length": ({"clients": [{"x": np.ones((2, 6)), "y": np.ones(3)}]}, "columns of unequal length"),
    "a client without examples": ({"clients": [client(3), client(0)]}, "client 1 has no examples: leave it out"),
    "a test set of another shape": (
        {"test": [client(3, inputs=7)]},
        r"column 'x' has examples of shape \(7,\) in test but \(6,\) in train",
    ),
    "weights of another model": ({"params": {"w1": WEIGHTS["w1"]}}, "params has no weights 'b1'"),
    "a layer that does not exist": ({"trainable": ["w3"]}, r"no weights are called 'w3' \(did you mean"),
    "nothing to train": ({"trainable": lambda name: False}, "no weights would be trained"),
    "a rank too high": ({"trainable": ft.tasks.lora(3)}, "rank 3 is not below the smaller side of 'w2', a 5 × 3 mat"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_refused_in_one_line(case):
    arguments, message = WRONG[case]
    with pytest.raises(ValueError, match=message) as raised:
        ft.tasks.supervised(**{"model": pair(), "clients": CLIENTS, **arguments})
    assert "\n" not in str(raised.value)


def test_unused_columns_of_any_type_do_no_harm():
    clients = [{**CLIENTS["ann"], "name": np.array(list("abcde"))}]
    assert set(ft.tasks.supervised(pair(), clients).train.columns) == {"x", "y"}


# --- from_arrays ------------------------------------------------------------------------------------------------------


def with_noise(params, example, key=None):
    return (params - example["x"]) ** 2 + (0.0 if key is None else jax.random.uniform(key))


def test_a_loss_of_one_example_may_take_a_key_which_is_none_in_evaluation():
    task = ft.tasks.from_arrays([{"x": np.zeros(4)}], lambda key: jnp.zeros(()), with_noise)
    loss = lambda seed: float(task.loss(jnp.zeros(()), batch_of(task, seed=seed))[0])
    keys = jax.random.split(jax.random.key(0), 4)  # one per example
    assert loss(0) == pytest.approx(float(jax.vmap(jax.random.uniform)(keys).mean()))
    assert loss(0) != loss(1)
    assert task.metrics(jnp.zeros(()), batch_of(task))["loss"][0] == 0


@pytest.mark.parametrize(
    "loss, message",
    [
        (lambda params, example: params - jnp.ones(2), r"the loss of one example has shape \(2,\): return one number"),
        (lambda params, example, key: jax.random.uniform(key), "the loss fails when its key is None"),
        (lambda params, example: example["y"], "the loss fails on one example with columns 'x': 'y'"),
    ],
)
def test_a_loss_of_one_example_that_cannot_be_used_is_refused_when_the_task_is_built(loss, message):
    with pytest.raises(ValueError, match=message):
        ft.tasks.from_arrays([{"x": np.zeros(4)}], lambda key: jnp.zeros(()), loss)


def test_from_arrays_carries_integers_along_too():
    init = lambda key: {"order": jnp.array([1, 0]), "w": jnp.zeros(2)}
    loss = lambda params, example: jnp.sum((params["w"][params["order"]] - example["x"]) ** 2)
    task = ft.tasks.from_arrays([{"x": np.array([[1.0, 2.0]])}], init, loss)
    result = ft.train(task, ft.fedopt(ft.client.sgd(0.25)), rounds=1)
    assert_allclose(result.params["w"], [1.0, 0.5])  # w − η · 2 (w[order] − x), in the order of w
    assert_array_equal(result.weights["order"], [1, 0])
    assert replace(task, train=task.train).model_weights is task.model_weights

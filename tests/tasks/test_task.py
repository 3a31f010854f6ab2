"""Laws of a task: weights and steps of its clients follow from its data; its metrics have a direction."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fedtrue as ft
from fedtrue.data.client_data import ClientData
from fedtrue.models.model import Model
from fedtrue.tasks.metric import FRACTION_METRIC, LOSS_METRIC, Metric, known_metric, recorded_metric
from fedtrue.tasks.next_token import next_token_task

TOKENS = np.array([[9, 1, 2], [9, 3, 0], [9, 4, 5]], np.uint8)  # targets per row without padding: 2, 1, 2
NO_MODEL = Model(lambda key: {}, lambda params, inputs: inputs)


def words():
    train = ClientData.from_clients([{"tokens": TOKENS}, {"tokens": TOKENS[:1]}])
    return next_token_task(name="words", model=NO_MODEL, ignored_targets={}, train=train, batch_size=2)


def test_token_weights_follow_the_current_train_data():
    task = words()
    assert_array_equal(task.client_weights(), [5, 2])  # 2 + 1 + 2; 2
    assert_array_equal(replace(task, train=task.train.take(2)).client_weights(), [3, 2])  # 2 + 1; 2
    assert_array_equal(replace(task, train=task.train.subset([1])).client_weights(), [2])
    assert_array_equal(task.client_weights(), [5, 2])


def test_example_weights_follow_the_data_too():
    task = words()
    assert_array_equal(replace(task, train=task.train.take(2)).client_weights("examples"), [2, 1])


def test_tokens_are_counted_once_per_task():
    counted = []
    task = replace(words(), counts={"tokens": lambda data: counted.append(data) or np.ones(len(data))})
    task.client_weights(), task.client_weights("tokens")
    assert counted == [task.train]


def test_the_weights_of_a_quadratic_belong_to_its_clients():
    task = ft.tasks.quadratic(weights=[1.0, 3.0])
    assert_array_equal(task.client_weights(), [0.25, 0.75])
    assert_array_equal(replace(task, train=task.train.subset([1, 0])).client_weights(), [0.75, 0.25])
    assert_array_equal(ft.tasks.quadratic().client_weights(), [1, 1])


def test_an_unknown_weighting_is_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match="'quadratic' does not count tokens: choose weighting 'examples', 'uniform' or 'batches'"
    ):
        ft.tasks.quadratic().client_weights("tokens")
    with pytest.raises(
        ValueError, match="does not count words: choose weighting 'examples', 'uniform', 'batches' or 'tokens'"
    ):
        words().client_weights("words")


# --- metrics ----------------------------------------------------------------------------------------------------------


def own(metric, **declared):
    """Two examples, a loss, and one metric of the given name."""
    return ft.tasks.from_arrays(
        [{"x": np.ones(2)}],
        init=lambda key: jnp.zeros(()),
        loss=lambda params, example: (params - example["x"]) ** 2,
        metrics=lambda params, example: {metric: params},
        test=[{"x": np.ones(2)}],
        **declared,
    )


def test_a_metric_declares_whether_higher_is_better_and_whether_it_is_a_fraction():
    task = own("auc", higher_is_better=["auc", "f1"], lower_is_better=["error"], percent=["f1", "error"])
    assert task.metric_kinds == {"auc": Metric(True, False), "f1": Metric(True, True), "error": Metric(False, True)}


def test_a_metric_without_a_direction_is_refused_when_the_task_is_built():
    cure = r"does not say whether a higher 'auc' is better: add higher_is_better=\('auc',\) or lower_is_better"
    with pytest.raises(ValueError, match=cure):
        own("auc")


@pytest.mark.parametrize("name", ["loss", "accuracy", "accuracy_with_eos", "recall_at_5", "precision"])
def test_known_names_need_no_declaration(name):
    assert own(name).metric_kinds == {}
    assert known_metric(name) == (LOSS_METRIC if name == "loss" else FRACTION_METRIC)


@pytest.mark.parametrize("recorded", ["metrics", "loss"])
def test_a_task_with_an_undeclared_metric_is_refused_before_its_first_round(recorded):
    sums = {"auc": (jnp.ones(()), jnp.ones(()))}
    record = {"metrics": lambda params, batch: sums, "loss": lambda params, batch: (params, sums)}
    task, trained = replace(own("loss"), **{recorded: record[recorded]}), []
    with pytest.raises(ValueError, match="does not say whether a higher 'auc' is better"):
        ft.train(task, ft.fedopt(ft.client.sgd(0.1)), rounds=3, progress=lambda *round: trained.append(round))
    assert trained == []


@pytest.mark.parametrize(
    "declared, said",
    [
        ({"higher_is_better": ["auc"], "lower_is_better": ["auc"]}, "'auc' is in higher_is_better and in lower_is_bet"),
        ({"percent": ["auc"]}, "'auc' is in percent only: add it to higher_is_better or lower_is_better"),
    ],
)
def test_declarations_that_contradict_each_other_are_refused(declared, said):
    with pytest.raises(ValueError, match=said):
        own("auc", **declared)


def test_a_declaration_overrides_the_known_names():
    assert recorded_metric("accuracy", {"accuracy": Metric(False)}) == Metric(False)
    assert recorded_metric("auc", {}) == LOSS_METRIC  # records older than declarations

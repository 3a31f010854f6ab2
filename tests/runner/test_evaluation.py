"""Evaluation streams over the data, and its sums include every client."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedtrue as ft
from fedtrue.runner.build import load_task
from fedtrue.runner.evaluation import Evaluator, means, sums_of_clients
from fedtrue.runner.settings import RunConfig

RNG = np.random.default_rng(0)


def task_of(clients, batch):
    """Mean of x, and how often x exceeds the weight; examples of unequal clients."""
    return ft.tasks.from_arrays(
        [{"x": np.asarray(x, np.float32)} for x in clients],
        init=lambda key: jnp.zeros(()),
        loss=lambda params, example: example["x"],
        metrics=lambda params, example: {"above": (example["x"] > params).astype(jnp.float32)},
        higher_is_better=["above"],
        evaluation_batch_size=batch,
    )


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), batch=st.sampled_from([1, 4, 7]))
def test_the_metrics_do_not_depend_on_how_the_data_is_cut_into_batches(sizes, batch):
    clients = [RNG.normal(size=size) for size in sizes]
    found = Evaluator(task_of(clients, batch))(jnp.zeros(()), task_of(clients, batch).train)
    assert found.metrics["loss"] == pytest.approx(np.concatenate(clients).mean(), abs=1e-5)
    assert found.per_client["above"] == pytest.approx([(client > 0).mean() for client in clients])


def test_quantiles_show_clients_with_low_metrics_that_an_average_hides():
    clients = [[1.0] * 100] * 18 + [[-1.0]] * 2  # two small clients of twenty are always wrong
    task = task_of(clients, 64)
    found = Evaluator(task)(jnp.zeros(()), task.train)
    assert found.metrics["above"] > 0.99
    assert found.quantiles("above") == {"lowest_tenth": 0.0, "p10": pytest.approx(0.9), "median": 1.0, "p90": 1.0}


def test_a_limit_evaluates_only_the_first_examples():
    task = task_of([[1.0, 1.0], [3.0, 100.0]], 4)
    found = Evaluator(task)(jnp.zeros(()), task.train, limit=3)
    assert found.metrics["loss"] == pytest.approx(5 / 3)  # 1, 1, 3


def test_a_batch_is_summed_only_over_its_own_clients():
    first, sums = sums_of_clients(np.array([70_000, 70_000, 70_002]), np.array([[1.0, 2.0, 4.0]]))
    assert first == 70_000
    assert sums.tolist() == [[3.0, 0.0, 4.0]]  # 1 + 2; client 70,001 has no example here; 4


def test_only_evaluated_clients_have_an_entry():
    task = task_of([[1.0]] * 5 + [[2.0, 4.0]] + [[1.0]] * 1000, 2)
    found = Evaluator(task)(jnp.zeros(()), task.train, limit=6)
    assert found.per_client["loss"].tolist() == [1, 1, 1, 1, 1, 2]  # the first example of the sixth client


def test_the_limit_is_a_setting_of_the_run():
    assert load_task(RunConfig("synthetic_tags", {"clients": 2}, evaluation_limit=7)).evaluation_limit == 7
    assert load_task(RunConfig("synthetic_tags", {"clients": 2})).evaluation_limit is None
    with pytest.raises(ValueError, match="evaluation_limit"):
        load_task(RunConfig("quadratic", evaluation_limit=0))


def test_views_of_the_data_are_evaluated_as_such():
    task = task_of([[1.0, 2.0, 3.0], [5.0], [7.0, 9.0]], 4)
    evaluate = Evaluator(task)
    assert evaluate(jnp.zeros(()), task.train.take(1)).metrics["loss"] == pytest.approx((1 + 5 + 7) / 3)
    assert evaluate(jnp.zeros(()), task.train.subset(np.array([2, 0]))).per_client["loss"] == pytest.approx([8, 2])


def test_evaluation_reads_one_batch_at_a_time_for_every_size_of_the_test_set(monkeypatch):
    read = []

    class Watched(np.ndarray):
        def __getitem__(self, rows):
            read.append(np.size(rows))
            return np.asarray(super().__getitem__(rows))

    task = task_of([np.arange(1000.0)], 16)
    evaluate = Evaluator(task)
    task.train.columns["x"] = np.asarray(task.train.columns["x"]).view(Watched)
    evaluate(jnp.zeros(()), task.train)
    assert set(read) == {16}
    assert len(read) == 63  # ⌈1000 / 16⌉


def test_a_count_of_zero_gives_nan_and_no_error():
    assert np.isnan(means({"accuracy": (0.0, 0.0)})["accuracy"])


def test_training_evaluates_at_the_given_interval_and_at_the_end():
    task = ft.tasks.from_arrays(
        [{"x": np.ones(3)}],
        lambda key: jnp.zeros(()),
        lambda params, example: (params - example["x"]) ** 2,
        test=[{"x": np.ones(2)}],
    )
    result = ft.train(task, ft.fedopt(ft.client.sgd(0.1)), rounds=7, evaluate_every=3)
    assert [entry["round"] for entry in result.evaluations] == [3, 6, 7]
    losses = [entry["metrics"]["test"]["loss"] for entry in result.evaluations]
    assert losses == pytest.approx([0.8 ** (2 * rounds) for rounds in (3, 6, 7)], rel=1e-4)  # x ← x + 0.2 (1 − x)

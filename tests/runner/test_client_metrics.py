"""Every evaluated client's final metrics are kept, with its name."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fedtrue as ft
from fedtrue.runner.client_metrics import CLIENT_METRICS, as_csv, read_client_metrics

METHOD = ft.methods.fedavg(client_rate=0.25)
TEST = {"ann": {"x": np.array([1.0, 3.0])}, 'b,"ob"': {"x": np.array([5.0])}}


def task_of(test):
    loss = lambda params, example: (params - example["x"]) ** 2
    return ft.tasks.from_arrays([{"x": np.zeros(2)}], lambda key: jnp.ones(()), loss, test=test)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clients") / "run"
    return ft.train(task_of(TEST), METHOD, rounds=3, evaluate_every=1, out=folder), folder


def test_the_result_has_one_value_per_client_after_the_last_round(run):
    clients = run[0].clients["test"]
    w = float(run[0].params)
    assert w == pytest.approx(0.125)  # halved in each of three rounds: w − ¼ · 2 w
    assert list(clients["client"]) == list(TEST)
    assert clients["loss"] == pytest.approx([((w - 1) ** 2 + (w - 3) ** 2) / 2, (w - 5) ** 2])


def test_the_run_folder_has_the_same_numbers(run):
    result, folder = run
    for stored in (read_client_metrics(folder / CLIENT_METRICS), ft.load_run(folder).clients):
        assert stored["test"]["client"] == list(TEST)
        assert_array_equal(stored["test"]["loss"], result.clients["test"]["loss"])


def test_a_run_that_had_ended_keeps_them(run):
    result, folder = run
    again = ft.train(task_of(TEST), METHOD, rounds=3, evaluate_every=1, out=folder, resume=True)
    assert_array_equal(again.clients["test"]["loss"], result.clients["test"]["loss"])


def test_nothing_is_written_without_held_out_clients(tmp_path):
    result = ft.train(task_of(None), METHOD, rounds=1, out=tmp_path / "run")
    assert result.clients == {} == ft.load_run(tmp_path / "run").clients
    assert not (tmp_path / "run" / CLIENT_METRICS).exists()


def test_splits_share_a_table_and_a_client_without_a_value_has_nan():
    table = {
        "validation": {"client": ["a"], "loss": np.array([0.1])},
        "test": {"client": ["b"], "loss": np.array([np.nan])},
    }
    assert as_csv(table).decode() == "split,client,loss\nvalidation,a,0.1\ntest,b,nan\n"

"""A reply that cannot be used is named in one line of the log, counted in the records, and never averaged in."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.clientapp import ClientApp

import fedtrue as ft
from tests.flower.federations import grid_of, noisy_task, tampered, weights

UPDATE = "contribution.update"
TASK = noisy_task(cohort=3)
METHOD = ft.fedopt(ft.client.adagrad(0.1), correction="joint")
CLIPPED = ft.methods.scaffold(ft.client.sgd(0.1), privacy="gaussian(clip=1)")
APP = ft.flower.client_app(TASK, METHOD)


def set_array(value):
    def change(content):
        content[UPDATE] = ArrayRecord({"w": Array(np.asarray(value))})

    return change


def rename(content):
    content[UPDATE] = ArrayRecord({"v": content[UPDATE]["w"]})


def without_inverse_trace(content):
    del content["contribution.inverse_trace"]


def claim_no_data(content):
    content["reply"]["weight.method"] = 0.0


def lie_about_types(content):
    content["reply"]["weight.method"] = [1.0, 2.0]


def add_another(content):
    content["contribution.more"] = content[UPDATE]


BAD = {  # what is changed, the count that it enters, what the log says
    "NaN": (set_array(np.full(3, np.nan, np.float32)), "dropped", "client 1 is dropped: its update is not finite"),
    "shape": (set_array(np.zeros(4, np.float32)), "refused", "'w' has shape (4,), not (3,)"),
    "type": (set_array(np.zeros(3)), "refused", "'w' is float64, not float32"),
    "name": (rename, "refused", "its 'update' has no array 'w'"),
    "no trace": (without_inverse_trace, "refused", "it sent no 'inverse_trace', which the server's method needs"),
    "no data": (claim_no_data, "refused", "its weight is 0"),
    "not a number": (lie_about_types, "refused", "must be a string or a real number, not 'list'"),
    "empty": (RecordDict.clear, "refused", "the reply is empty"),
    "too much": (add_another, "refused", "it sent 'more', which the server's method does not take"),
}


def without_client_1():
    """The weights of two rounds in which client 1 never replies."""
    grid = grid_of(TASK, METHOD)
    strategy = ft.flower.Strategy(METHOD, TASK)
    strategy.directory.look(grid)  # known, so that its share of the objective counts
    grid.offline = {2}
    strategy.start(grid, num_rounds=2)
    assert strategy.result.history["missing"].tolist() == [1, 1]
    return weights(strategy.result.params)


@pytest.fixture(scope="module")
def expected():
    return without_client_1()


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_reply_is_counted_and_named_and_never_averaged_in(kind, expected, caplog):
    change, count, says = BAD[kind]
    strategy = ft.flower.Strategy(METHOD, TASK)
    strategy.start(ft.flower.LocalGrid([APP, tampered(APP, change), APP]), num_rounds=2)
    np.testing.assert_array_equal(weights(strategy.result.params), expected)
    assert strategy.result.history[count].tolist() == [1, 1] and strategy.result.history["clients"].tolist() == [2, 2]
    assert strategy.result.summary["totals"][count] == 2
    (line,) = [record.getMessage() for record in caplog.records if "round 0: client 1" in record.getMessage()]
    assert says in line and "\n" not in line


def test_an_app_that_raises_is_missing(caplog):
    def crash(content):
        raise RuntimeError("no disk")

    strategy = ft.flower.Strategy(METHOD, TASK)
    strategy.start(ft.flower.LocalGrid([APP, tampered(APP, crash), APP]), num_rounds=1)
    assert strategy.result.history["missing"].tolist() == [1]
    assert "client 1 does not reply: RuntimeError: no disk" in caplog.text


def test_a_round_with_fewer_good_replies_than_the_minimum_is_skipped_and_said(caplog):
    bad = tampered(APP, set_array(np.zeros(4, np.float32)), lambda message: message.content["config"]["round"] == 1)
    strategy = ft.flower.Strategy(METHOD, TASK, min_replies=3)
    strategy.start(ft.flower.LocalGrid([APP, bad, APP]), num_rounds=3)
    history = strategy.result.history
    assert history["clients"].tolist() == [3, 0, 3] and strategy.result.summary["totals"]["skipped_rounds"] == 1
    assert "round 1 is skipped: 2 good replies of 3 clients, and min_replies is 3" in caplog.text


def test_a_client_of_another_method_is_refused(caplog):
    other = ft.flower.client_app(TASK, ft.fedopt(ft.client.adagrad(0.2), correction="joint"))
    strategy = ft.flower.Strategy(METHOD, TASK)
    strategy.start(ft.flower.LocalGrid([APP, other, APP]), num_rounds=1)
    assert strategy.result.history["refused"].tolist() == [1] and "give both the same" in caplog.text


def test_nodes_without_data_number_or_query_take_no_part(caplog):
    empty, silent = ClientApp(), ClientApp()
    empty.query()(lambda message, context: ft.flower.answer(message, context, examples=0))
    grid = ft.flower.LocalGrid([APP, empty, APP, silent, APP])
    del grid.contexts[5].node_config["partition-id"]
    strategy = ft.flower.Strategy(METHOD, TASK, start_timeout=0)
    strategy.start(grid, num_rounds=1)
    assert strategy.result.history["clients"].tolist() == [2] and strategy.result.history["missing"].tolist() == [1]
    for says in ("client 1 has no data", "its app fails in a query", "has no partition-id", "clients [1] are not conn"):
        assert says in caplog.text


@pytest.mark.parametrize(
    "make, cure",
    [
        (lambda: ft.flower.Strategy(METHOD), "give clients="),
        (lambda: ft.flower.Strategy(METHOD, clients=3).start(grid_of(TASK, METHOD)), "give start(…, initial_arrays="),
        (lambda: ft.flower.Strategy(ft.fedopt(ft.client.sgd(0.1), sampling="optimal"), TASK), "use 'uniform'"),
        (
            lambda: ft.flower.Strategy(CLIPPED, TASK).start(grid_of(TASK, CLIPPED)),
            "use a method without control variates",
        ),
        (
            lambda: ft.flower.Strategy(METHOD, TASK, start_timeout=0, min_replies=3).start(
                ft.flower.LocalGrid(APP, nodes=2), num_rounds=1
            ),
            "start SuperNodes with --node-config partition-id=2",
        ),
    ],
)
def test_a_server_that_cannot_start_says_what_to_do(make, cure):
    with pytest.raises(ValueError) as error:
        make()
    assert cure in str(error.value) and "\n" not in str(error.value)

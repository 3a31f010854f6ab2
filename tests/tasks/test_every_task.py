"""Laws that hold for every task."""

from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.aggregation import total, weigh
from fedtrue.algorithm.interface import METHOD, Client, Context, Loss
from fedtrue.data.batches import device_rows
from fedtrue.models import count_weights
from fedtrue.tasks import TASKS
from fedtrue.tasks.paper_rates import SHAKESPEARE, STACKOVERFLOW_TAGS, STACKOVERFLOW_WORDS

TINY = {"embedding": 4, "hidden": 8}
TINY_WORDS = {**TINY, "projection": 4}
PAGES = Path(__file__).parents[2] / "docs" / "tasks"
SMALL = {  # every task, small enough to train within seconds
    "shakespeare": partial(ft.tasks.shakespeare, validation=0.2, **TINY),
    "stackoverflow_words": partial(ft.tasks.stackoverflow_words, vocabulary=30, length=6, **TINY_WORDS),
    "stackoverflow_tags": partial(ft.tasks.stackoverflow_tags, words=30, tags=6),
    "cifar100": partial(ft.tasks.cifar100, model="cnn", validation=0.3),
    "cifar10": partial(ft.tasks.cifar10, clients=5, validation=0.2),
    "mnist": partial(ft.tasks.mnist, validation=0.3),
    "mnist, cnn": partial(ft.tasks.mnist, model="cnn"),
    "stackexchange": partial(ft.tasks.stackexchange, **TINY_WORDS),
    "stackexchange, tags": partial(ft.tasks.stackexchange, kind="tags"),
    "descriptions": partial(ft.tasks.descriptions),
    "synthetic_words": partial(
        ft.tasks.synthetic_words, clients=20, vocabulary=50, length=6, examples_per_client=9, **TINY_WORDS
    ),
    "synthetic_tags": partial(ft.tasks.synthetic_tags, clients=20, words=50, tags=8, examples_per_client=9),
}
ONE_OF_A_KIND = ["shakespeare", "stackoverflow_words", "stackoverflow_tags", "cifar100", "mnist"]


def first_batch(data, client=0, rows=3):
    indices = data.starts[client] + np.arange(min(rows, data.sizes[client]))
    batch = device_rows(data.columns, indices)
    return {**batch, "mask": jnp.ones(len(indices)), "key": jax.random.key(0)}


def test_every_task_in_the_table_is_tested_here_and_has_a_page_with_its_command():
    assert {name.split(",")[0] for name in SMALL} == set(TASKS) - {"quadratic"}
    assert {page.stem for page in PAGES.glob("*.md")} == {"index", *TASKS}
    for name in TASKS:
        assert f"fedtrue run {name}" in (PAGES / f"{name}.md").read_text()


def test_the_index_page_has_the_summaries_of_the_table():
    index = (PAGES / "index.md").read_text()
    for name, entry in TASKS.items():
        assert f"| [{name}]({name}.md) | {entry.summary} |" in index


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """These programs run for milliseconds; XLA's optimizer would take most of the time."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@cache
def small_task(name):
    return SMALL[name]()


@cache
def compiled_loss(name):
    return jax.jit(small_task(name).loss)


@cache
def small_weights(name):
    """Those that every method starts from."""
    return small_task(name).init(jax.random.key(0))


def two_plain_rounds(name, correction):
    """The parts of the algorithm, client by client: what the engine does in one program."""
    task, method = small_task(name), ft.fedopt(ft.client.adagrad(0.05), correction=correction)
    server, (phase,) = method.init(small_weights(name)), method.phases

    @jax.jit
    def train(server, batch, client, context, size):
        no_sums = jax.tree.map(jnp.zeros_like, task.loss(server.params, batch)[1])
        work, broadcast = phase.work(Loss(task.loss, no_sums)), phase.broadcast(server, context)
        state = work.step(broadcast, work.start(broadcast, client, ()), batch, 0.05)
        return weigh(work.finish(broadcast, state, client, context), {METHOD: size})

    @jax.jit
    def receive(server, outputs, context):
        return phase.receive(server, total(jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs)), context)[0]

    for round_index in range(2):
        context = Context(jnp.int32(round_index), jax.random.key(round_index), clients=2, cohort=2)
        outputs = []
        for index in range(2):
            batch, client = first_batch(task.train, index, rows=2), Client(index, 1, 0.05, 1.0)
            outputs.append(train(server, batch, client, context, jnp.float32(task.train.sizes[index])))
        server = receive(server, outputs, context)
    return server.params


def assert_finite_and_moved(name, params):
    moved = jax.tree.map(
        lambda before, after: float(np.abs(np.asarray(after) - np.asarray(before)).max()), small_weights(name), params
    )
    assert np.isfinite(jax.tree.leaves(moved)).all()
    assert max(jax.tree.leaves(moved)) > 0


@pytest.mark.parametrize("name", ONE_OF_A_KIND)
def test_two_rounds_in_the_engine_leave_finite_weights_that_moved_and_an_evaluation(name, small_data):
    task = small_task(name)
    result = ft.train(task, ft.fedopt(ft.client.adagrad(0.05)), rounds=2, cohort=2, local_steps=2, lanes=1)
    assert_finite_and_moved(name, result.params)
    assert list(result.history["dropped"]) == [0, 0]
    for metric, value in result.evaluations[-1]["metrics"]["test"].items():
        assert np.isfinite(value) and (metric == "loss" or 0 <= value <= 1), metric


@pytest.mark.parametrize("correction", ["none", "local", "joint"])
@pytest.mark.parametrize("name", SMALL)
def test_two_rounds_with_every_correction_leave_finite_weights_that_moved(name, correction, small_data):
    assert_finite_and_moved(name, two_plain_rounds(name, correction))


@pytest.mark.parametrize("name", SMALL)
def test_no_example_of_validation_or_test_is_trained_on(name, small_data):
    task = small_task(name)
    assert task.test is not None
    for held_out in filter(None, (task.validation, task.test)):
        for other in filter(None, (task.train, task.validation)):
            if held_out is not other and held_out.columns is other.columns:
                assert not set(rows_of(held_out)) & set(rows_of(other))
    if name != "shakespeare":  # its roles are in every split, as the paper's
        splits = [set(data.client_ids) for data in (task.train, task.validation, task.test) if data]
        assert sum(map(len, splits)) == len(set.union(*splits))


def rows_of(data):
    return np.concatenate([np.arange(start, start + size) for start, size in zip(data.starts, data.sizes)]).tolist()


@pytest.mark.parametrize("name", ["shakespeare", "stackoverflow_words", "stackoverflow_tags"])
def test_the_loss_of_a_padded_batch_equals_that_of_the_unpadded_one(name, small_data):
    params, batch = small_task(name).init(jax.random.key(1)), first_batch(small_task(name).train, rows=2)
    columns = {column: value for column, value in batch.items() if column != "key"}
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), columns)
    alone, sums = compiled_loss(name)(params, batch)
    padded, padded_sums = compiled_loss(name)(params, {**twice, "mask": jnp.array([1.0, 1, 0, 0]), "key": batch["key"]})
    np.testing.assert_allclose(padded, alone, rtol=1e-5)
    np.testing.assert_allclose(padded_sums["loss"], sums["loss"], rtol=1e-5)


@pytest.mark.parametrize("name", SMALL)
def test_an_example_renders_as_text_or_image_and_the_source_is_one_line(name, small_data):
    task = small_task(name)
    shown = task.render({column: rows[0] for column, rows in task.test.client(0).items()})
    assert shown.ndim >= 2 if isinstance(shown, np.ndarray) else shown.strip()
    assert task.source and "\n" not in task.source


@pytest.mark.parametrize("name", SMALL)
def test_weights_are_tokens_for_sequences_batches_for_summed_losses_and_examples_otherwise(name, small_data):
    task = small_task(name)
    tokens = task.train.columns.get("tokens")
    assert task.weighting == ("batches" if task.summed_loss else "examples" if tokens is None else "tokens")
    weights = task.client_weights(task.weighting)
    if task.summed_loss:
        np.testing.assert_array_equal(weights, np.ceil(task.train.sizes / task.batch_size))
    elif tokens is None:
        np.testing.assert_array_equal(weights, task.train.sizes)
    else:
        clients = [task.train.client(index)["tokens"] for index in range(len(task.train))]
        np.testing.assert_array_equal(weights, [np.count_nonzero(rows[:, 1:]) for rows in clients])


@pytest.mark.parametrize(
    "factory, weights",
    [
        (lambda: ft.tasks.synthetic_words(clients=2), 4_050_748),
        (lambda: ft.tasks.synthetic_tags(clients=2), 5_000_500),
        (ft.tasks.shakespeare, 820_522),
        (ft.tasks.cifar100, 11_227_812),
        (ft.tasks.mnist, 7_850),  # 784·10 + 10
    ],
)
def test_default_models_have_the_papers_numbers_of_weights(factory, weights, small_data):
    task = factory()
    assert count_weights(jax.eval_shape(task.init, jax.random.key(0))) == weights


@pytest.mark.parametrize(
    "rates, key, logs",  # as the paper's table prints them: (log10 client rate, log10 server rate, log10 ε)
    [
        (SHAKESPEARE, ("adagrad", "adagrad", "joint"), (-0.5, -0.5, -1)),
        (SHAKESPEARE, ("adagrad", "sgd", "none"), (0.5, -1, -1)),
        (SHAKESPEARE, ("sgd", "adagrad", "local"), (-0.5, 2)),
        (STACKOVERFLOW_WORDS, ("adam", "adagrad", "none"), (-0.5, -1.5, -3)),
        (STACKOVERFLOW_WORDS, ("adam", "adagrad", "local"), (-1, -1.5, -5)),
        (STACKOVERFLOW_TAGS, ("sgd", "sgd", "none"), (2.5, 0)),
        (STACKOVERFLOW_TAGS, ("adagrad", "adagrad", "local"), (-0.5, 1, -7)),
    ],
)
def test_recommended_rates_are_the_powers_of_ten_in_the_papers_table(rates, key, logs):
    client, server, epsilon = rates[key]
    assert (client, server) == pytest.approx((10 ** logs[0], 10 ** logs[1]))
    assert epsilon == (pytest.approx(10 ** logs[2]) if len(logs) == 3 else None)


def test_the_papers_rates_are_complete():
    assert (len(STACKOVERFLOW_WORDS), len(SHAKESPEARE), len(STACKOVERFLOW_TAGS)) == (12, 8, 12)  # servers × clients

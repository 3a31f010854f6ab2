"""Laws of a task: what it says of its clients follows from the data it holds."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fedtrue as ft
from fedtrue.data.client_data import ClientData
from fedtrue.models.model import Model
from fedtrue.tasks.next_token import next_token_task

TOKENS = np.array([[9, 1, 2], [9, 3, 0], [9, 4, 5]], np.uint8)  # targets that are not pads per row: 2, 1, 2
NO_MODEL = Model(lambda key: {}, lambda params, inputs: inputs)


def words():
    train = ClientData.from_clients([{"tokens": TOKENS}, {"tokens": TOKENS[:1]}])
    return next_token_task(name="words", model=NO_MODEL, maskings={}, train=train, batch_size=2)


def test_token_weights_are_those_of_the_clients_that_the_task_holds_now():
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


def test_the_weights_of_a_quadratics_clients_go_with_the_clients():
    task = ft.tasks.quadratic(weights=[1.0, 3.0])
    assert_array_equal(task.client_weights(), [0.25, 0.75])
    assert_array_equal(replace(task, train=task.train.subset([1, 0])).client_weights(), [0.75, 0.25])
    assert_array_equal(ft.tasks.quadratic().client_weights(), [1, 1])


def test_a_weighting_that_the_task_cannot_count_is_refused_with_those_it_can():
    with pytest.raises(ValueError, match="'quadratic' does not count tokens: choose weighting 'examples' or 'uniform'"):
        ft.tasks.quadratic().client_weights("tokens")
    with pytest.raises(ValueError, match="does not count words: choose weighting 'examples', 'uniform' or 'tokens'"):
        words().client_weights("words")

"""Whatever is wrong is said at once, in one line, before anything is compiled."""

import numpy as np
import pytest

import fedtrue as ft


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("compiled before the input was checked")

    monkeypatch.setattr("fedtrue.engine.simulation.jax.jit", fail)


def quadratic(**changes):
    return ft.tasks.quadratic(**{"hessians": [[1.0, 2.0], [3.0, 4.0]], "minima": [[0.0, 0.0], [1.0, 1.0]], **changes})


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"hessians": [[[1.0, 2.0]], [3.0, 4.0]]}, "client 0: its Hessian must be a diagonal or a square matrix"),
        ({"hessians": [[[1.0, 2.0], [0.0, 1.0]], [3.0, 4.0]]}, "client 0: its Hessian is not symmetric"),
        ({"hessians": [[1.0, 2.0], [3.0, -4.0]]}, "client 1: its Hessian is not positive definite"),
        ({"hessians": [[1.0, 2.0], [3.0, 4.0, 5.0]]}, "client 1: its Hessian is 3 × 3, its minimum has 2 entries"),
        ({"hessians": [[1.0, float("nan")], [3.0, 4.0]]}, "client 0: its Hessian and minimum must be finite"),
        ({"minima": [[0.0, 0.0], [1.0, float("nan")]]}, "client 1: its Hessian and minimum must be finite"),
        ({"minima": [[0.0, 0.0]]}, "2 hessians and 1 minima"),
        ({"hessians": "abc"}, "hessians and minima must be lists of numbers"),
        ({"minima": None}, "minima are missing"),
        ({"noise": -1.0}, "noise must be a finite number at least 0"),
        ({"weights": [1.0]}, "weights must be 2 finite numbers"),
        ({"weights": [-1.0, 2.0]}, "weights must be at least 0"),
        ({"start": [1.0]}, "start must be 2 finite numbers"),
    ],
)
def test_a_wrong_quadratic_is_named(changes, said):
    with pytest.raises(ValueError, match=said):
        quadratic(**changes)


@pytest.mark.parametrize(
    "build, said",
    [
        (lambda: ft.client.sgd(-1.0), "sgd: learning_rate must be a finite number at least 0"),
        (lambda: ft.client.adam(float("nan")), "adam: learning_rate"),
        (lambda: ft.client.adam(0.1, beta1=1.0), "adam: beta1 must be a finite number at least 0 and below 1"),
        (lambda: ft.client.adagrad(0.1, epsilon=-1e-7), "adagrad: epsilon"),
        (lambda: ft.client.adagrad("fast"), "adagrad: learning_rate"),
        (lambda: ft.client.preconditioned([1.0, 2.0], 0.1), "preconditioners must have shape"),
        (lambda: ft.client.preconditioned([[np.inf, 2.0]], 0.1), "preconditioners must be finite"),
        (lambda: ft.server.sgd(-1.0), "server sgd: learning_rate"),
        (lambda: ft.server.adam(0.1, epsilon=-1.0), "server adam: epsilon"),
        (lambda: ft.fedopt("adam"), "client 'adam' needs learning_rate"),
        (lambda: ft.fedopt(0.1), r"client must be a part such as ft.client.adagrad\(0.1\), not 0.1"),
        (lambda: ft.fedopt(ft.client.sgd(0.1), server=3), r"server must be a part such as ft.server.sgd\(1.0\)"),
        (lambda: ft.fedopt(ft.client.sgd(0.1), correction="jiont"), r"did you mean 'joint'.*none, local, joint"),
        (lambda: ft.fedopt(ft.client.sgd(0.1), trace="exat"), "did you mean 'exact'"),
        (lambda: ft.fedopt(ft.client.sgd(0.1), client_state="keep"), "restart, sync, inherit"),
        (lambda: ft.fedopt(ft.client.sgd(0.1), sampling="size"), "uniform, by_size"),
        (lambda: ft.fedopt(ft.client.sgd(0.1), weighting="example"), "did you mean 'examples'"),
        (lambda: ft.fedopt(ft.client.sgd(0.1), sampling="by_size", client_state="inherit"), "needs sampling 'uniform'"),
    ],
)
def test_a_wrong_part_is_named(build, said):
    with pytest.raises(ValueError, match=said):
        build()


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"local_steps": [1, 2, 3]}, "local_steps has 3 entries for 2 clients"),
        ({"local_steps": [1, 0]}, "local_steps must be whole numbers at least 1"),
        ({"local_steps": 2.5}, "local_steps must be whole numbers at least 1"),
        ({"rate_multipliers": [1.0]}, "rate_multipliers has 1 entries for 2 clients"),
        ({"rate_multipliers": [1.0, -1.0]}, "rate_multipliers must be finite and above 0"),
        ({"cohort": 3}, "cohort must be an integer of at least 1 and at most 2, not 3"),
        ({"rounds": -1}, "rounds must be an integer of at least 1"),
        ({"rounds": 0}, "rounds must be an integer of at least 1, not 0"),
        ({"rounds": 2.5}, "rounds must be an integer"),
        ({"seed": "x"}, "seed must be an integer"),
        ({"evaluate_every": 0}, "evaluate_every must be an integer of at least 1"),
        ({"lanes": 0}, "lanes must be an integer of at least 1"),
    ],
)
def test_a_wrong_run_is_named(arguments, said):
    with pytest.raises(ValueError, match=said):
        ft.train(quadratic(), ft.fedopt(ft.client.sgd(0.1)), **{"rounds": 1, **arguments})


def test_a_weighting_the_task_does_not_count_is_named():
    with pytest.raises(ValueError, match="does not count tokens: choose weighting 'examples', 'uniform' or 'batches'"):
        ft.train(quadratic(), ft.fedopt(ft.client.sgd(0.1), weighting="tokens"), rounds=1)


def test_sampling_by_size_and_weighting_by_size_warns_that_size_counts_twice():
    with pytest.warns(UserWarning, match="counts a client's size twice"):
        ft.fedopt(ft.client.sgd(0.1), sampling="by_size", weighting="examples")

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


def test_the_name_of_imported_data_is_no_task(monkeypatch):
    monkeypatch.setattr("fedtrue.engine.arguments.imported_names", lambda: ["visits"])
    with pytest.raises(ValueError, match=r"task is the text 'visits': give ft.tasks.imported\('visits'\)"):
        ft.train("visits", method(), rounds=1)


def method(**options):
    return ft.methods.fedavg(0.1, **options)


@pytest.mark.parametrize(
    "call",
    [
        lambda task, method: ft.train(task, method, rounds=1),
        lambda task, method: next(ft.rounds(task, method)),
        lambda task, method: ft.Simulation(task, method),
        lambda task, method: ft.diagnose("run", task, method),
    ],
)
@pytest.mark.parametrize(
    "swap, said",
    [
        (lambda task, method: (task, "fedavg"), r"method is the text 'fedavg': give ft.methods.fedavg\(…\)"),
        (lambda task, method: (task, "fedopt"), r"method is the text 'fedopt': give ft.fedopt\(…\)"),
        (lambda task, method: (task, "fedvag"), r"method is the text 'fedvag' \(did you mean 'fedavg'\?\): give"),
        (lambda task, method: (task, {"name": "fedavg"}), "method is a dict: give .* ft.from_spec"),
        (
            lambda task, method: (task, ft.methods.fedavg),
            r"method is the function fedavg: call it, ft.methods.fedavg\(…\)",
        ),
        (
            lambda task, method: (task, ft.client.adam(0.1)),
            r"method is a client optimizer: give ft.fedopt\(ft.client.adam\(…\)\)",
        ),
        (lambda task, method: (task, ft.server.adam(0.1)), r"method is a server optimizer: give ft.fedopt\(client, "),
        (lambda task, method: (task, lambda: method), "method is a function: call it$"),
        (lambda task, method: (ft.Task, method), "task is the class Task: give one of"),
        (lambda task, method: (method, task), "task is a method: give the task first, then the method"),
        (lambda task, method: (task, task), r"method is a task: give one of ft.methods"),
        (
            lambda task, method: ("shakespeare", method),
            r"task is the text 'shakespeare': give ft.tasks.shakespeare\(\)",
        ),
        (
            lambda task, method: ("shakespear", method),
            r"task is the text 'shakespear' \(did you mean 'shakespeare'\?\): give",
        ),
        (
            lambda task, method: ("own.py:task", method),
            r"task is the text 'own.py:task': give ft.tasks.from_file\('own.py:task'\)",
        ),
        (
            lambda task, method: (ft.tasks.quadratic, method),
            r"task is the function quadratic: call it, ft.tasks.quadratic\(…\)",
        ),
        (
            lambda task, method: ([{"x": [1.0]}], method),
            r"task is a list: give one of ft.tasks, .* ft.tasks.supervised",
        ),
    ],
)
def test_what_is_no_task_or_no_method_is_named_with_the_call_that_makes_one(call, swap, said):
    with pytest.raises(ValueError, match=said):
        call(*swap(quadratic(), method()))


@pytest.mark.parametrize("call", [ft.train, ft.rounds])
def test_none_is_no_task_and_no_method(call):
    arguments = {"rounds": 1}
    with pytest.raises(ValueError, match=r"method is None: give one of ft\.methods"):
        list(call(quadratic(), None, **arguments))
    with pytest.raises(ValueError, match=r"task is None: give one of ft\.tasks"):
        list(call(None, method(), **arguments))


@pytest.mark.parametrize(
    "call, said",
    [
        (
            lambda: ft.train(quadratic(), method(), rounds=1, availability={"dropout": 0.1}),
            r"give ft.Availability\(dropout=0.1\)",
        ),
        (
            lambda: ft.Simulation(quadratic(), method(), availability=0.1),
            "availability is a float: give ft.Availability",
        ),
        (lambda: ft.evaluate("quadratic", {}), r"task is the text 'quadratic': give ft.tasks.quadratic\(\)"),
        (lambda: ft.evaluate(quadratic(), {"weights": np.zeros(2)}, {}), "no held-out data"),
        (lambda: ft.diagnose(quadratic()), "run is a task: give the folder of a run"),
    ],
)
def test_other_arguments_of_the_wrong_type_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize(
    "params, said",
    [
        ({"weights": np.zeros(2)}, r"params has 'weights', which task 'quadratic' lacks: give those of params"),
        (np.zeros(3), r"params: 'params' has shape \(3,\), the task's has \(2,\)"),
        ({}, "params has no 'params'"),
        ("runs/mine", r"params is the text 'runs/mine': give weights, e.g. ft.load_run\('runs/mine'\)"),
        (None, "params is None: give weights"),
    ],
)
def test_evaluation_refuses_weights_of_another_model(params, said):
    task = quadratic()
    with pytest.raises(ValueError, match=said):
        ft.evaluate(task, params, {"train": task.train})


CLIENTS = {"ann": {"x": np.ones((4, 3), np.float32), "y": np.array([0, 1, 1, 1])}}


@pytest.mark.parametrize(
    "build, said",
    [
        (lambda model: ft.tasks.supervised(model, None), "clients has the type NoneType: give a list of dicts"),
        (
            lambda model: ft.tasks.supervised(model, CLIENTS, batch_size="a"),
            "batch_size is 'a': choose a whole number of at least 1",
        ),
        (lambda model: ft.tasks.supervised(model, CLIENTS, batch_size=2.5), "batch_size is 2.5: choose a whole number"),
        (
            lambda model: ft.data.from_pandas({"a": [1]}, client="a"),
            "frame is a dict: give a pandas DataFrame, or use .*from_dicts",
        ),
        (lambda model: ft.data.from_arrow([1], client="a"), "table is a list: give an Arrow table"),
        (lambda model: ft.data.from_huggingface(None, client="a"), "dataset is None: give a Hugging Face Dataset"),
    ],
)
def test_data_of_the_wrong_type_is_named(build, said):
    model = (lambda key: {"w": np.zeros((3, 2))}, lambda weights, x: x @ weights["w"])
    with pytest.raises(ValueError, match=said):
        build(model)


@pytest.mark.parametrize(
    "build, said",
    [
        (
            lambda: ft.client.adam(lr=0.1),
            r"adam has no lr \(did you mean 'learning_rate'\?\): it takes learning_rate, beta1",
        ),
        (lambda: ft.client.adam(0.1, beta_1=0.5), r"adam has no beta_1 \(did you mean 'beta1'\?\)"),
        (lambda: ft.client.adam(), "adam needs learning_rate"),
        (lambda: ft.client.sgd(0.1, 0.9, 0.3), "sgd: too many positional arguments"),
        (lambda: ft.methods.fedavg(lr=0.1), "fedavg has no lr"),
    ],
)
def test_a_call_with_wrong_arguments_is_a_type_error_that_names_them(build, said):
    with pytest.raises(TypeError, match=said):
        build()


@pytest.mark.parametrize("rate", [True, np.bool_(True)])
def test_a_truth_value_is_no_learning_rate(rate):
    with pytest.raises(ValueError, match="sgd: learning_rate must be a finite number at least 0, not"):
        ft.client.sgd(rate)
    with pytest.raises(ValueError, match="server sgd: learning_rate must be a finite number"):
        ft.server.sgd(rate)


def test_a_weighting_the_task_does_not_count_is_named():
    with pytest.raises(ValueError, match="does not count tokens: choose weighting 'examples', 'uniform' or 'batches'"):
        ft.train(quadratic(), ft.fedopt(ft.client.sgd(0.1), weighting="tokens"), rounds=1)


def test_sampling_by_size_and_weighting_by_size_warns_that_size_counts_twice():
    with pytest.warns(UserWarning, match="counts a client's size twice"):
        ft.fedopt(ft.client.sgd(0.1), sampling="by_size", weighting="examples")

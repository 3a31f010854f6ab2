"""Tasks, methods and availabilities from users are checked where they enter: what is none is named with its cure."""

from inspect import isfunction
from typing import Any

from fedtrue.algorithm.availability import Availability
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.data.imports import imported_names
from fedtrue.names import suggestion
from fedtrue.spec import FACTORIES
from fedtrue.tasks.own_file import task_file
from fedtrue.tasks.registry import TASKS
from fedtrue.tasks.task import Task

A_TASK = "give one of ft.tasks, e.g. ft.tasks.shakespeare(), or make one from your data by ft.tasks.supervised(…)"
A_METHOD = "give one of ft.methods, e.g. ft.methods.fedavg(…), or ft.fedopt(…)"


def check_run(task: Any, method: Any, availability: Any = None) -> None:
    """Refuses what is no task, no method or no availability."""
    check_task(task)
    check_method(method)
    if availability is not None and not isinstance(availability, Availability):
        options = availability if isinstance(availability, dict) else {"dropout": 0.1}
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise ValueError(f"availability is {described(availability)}: give ft.Availability({given})")


def check_task(task: Any) -> None:
    """Refuses what is no `Task`."""
    if isinstance(task, Task):
        return
    near, cure = "", A_TASK
    if isinstance(task, Method):
        cure = "give the task first, then the method"
    elif isinstance(task, str) and task_file(task):
        cure = f"give ft.tasks.from_file({task!r})"
    elif isinstance(task, str) and task in imported_names():
        cure = f"give ft.tasks.imported({task!r})"
    elif isinstance(task, str):
        near, cure = ("", f"give ft.tasks.{task}()") if task in TASKS else (suggestion(task, TASKS), A_TASK)
    elif isfunction(task):
        cure = f"call it, ft.tasks.{task.__name__}(…)" if task.__name__ in TASKS else "call it"
    raise ValueError(f"task is {described(task)}{near}: {cure}")


def check_method(method: Any) -> None:
    """Refuses what is no `Method`."""
    if isinstance(method, Method):
        return
    near, cure, known = "", A_METHOD, FACTORIES["method"]
    if isinstance(method, ClientOptimizer):
        cure = f"give ft.fedopt(ft.client.{method.name}(…))"
    elif isinstance(method, ServerOptimizer):
        cure = f"give ft.fedopt(client, ft.server.{method.name}(…))"
    elif isinstance(method, dict):
        cure = f"{A_METHOD}; ft.from_spec(…) builds one from its settings"
    elif isinstance(method, str):
        near, cure = ("", f"give {_call(method)}") if method in known else (suggestion(method, known), A_METHOD)
    elif isfunction(method):
        cure = f"call it, {_call(method.__name__)}" if method.__name__ in known else "call it"
    raise ValueError(f"method is {described(method)}{near}: {cure}")


def described(value: Any) -> str:
    """What a value is, for an error: "the text 'fedavg'", "the function fedavg", "a list"."""
    if value is None:
        return "None"
    if isinstance(value, str):
        return f"the text {value[:80]!r}"
    kinds = {
        Method: "a method",
        Task: "a task",
        ClientOptimizer: "a client optimizer",
        ServerOptimizer: "a server optimizer",
    }
    for kind, words in kinds.items():
        if isinstance(value, kind):
            return words
    if isfunction(value):
        return "a function" if value.__name__ == "<lambda>" else f"the function {value.__name__}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


def _call(method: str) -> str:
    """How a method of this name is made."""
    return f"{'ft' if method == 'fedopt' else 'ft.methods'}.{method}(…)"

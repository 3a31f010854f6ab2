"""The examples in the docstrings of data, models and tasks run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import fedtrue.data
import fedtrue.models
import fedtrue.tasks

MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (fedtrue.data, fedtrue.models, fedtrue.tasks)
    for module in pkgutil.iter_modules(package.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    module = importlib.import_module(name)  # not an attribute of its package: a task function may have the same name
    assert doctest.testmod(module, report=True).failed == 0

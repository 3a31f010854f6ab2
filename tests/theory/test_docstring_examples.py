"""Every public function of fedtrue.theory documents its arguments, and the examples in the docstrings run."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

from fedtrue import theory

MODULES = [f"{theory.__name__}.{module.name}" for module in pkgutil.iter_modules(theory.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    module = importlib.import_module(name)  # not an attribute of its package: `contraction` is a function there
    assert doctest.testmod(module, report=True).failed == 0


@pytest.mark.parametrize("name", theory.__all__)
def test_every_public_function_documents_each_argument_its_result_and_an_example(name):
    function = getattr(theory, name)
    documentation = function.__doc__
    assert ">>>" in documentation
    if inspect.isfunction(function):
        assert "Returns:" in documentation
        assert [
            argument for argument in inspect.signature(function).parameters if f"{argument}:" not in documentation
        ] == []

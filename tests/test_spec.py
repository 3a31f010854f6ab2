"""A part knows its name and options, and is built again from them."""

import json
import tomllib

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedtrue as ft
from fedtrue.algorithm.sampling import Sampling, uniform
from fedtrue.algorithm.weighting import Weighting
from fedtrue.runner.toml import to_toml
from fedtrue.spec import FACTORIES, from_spec, is_rebuildable, option_table

KINDS = ("client", "server", "schedule", "correction", "trace", "sampling", "weighting", "method")
VALUES = {  # an option's value in these tests, where its default would hide a mistake or does not exist
    "learning_rate": 0.25,
    "client_rate": 0.125,
    "server_rate": 0.5,
    "epsilon": 1e-4,
    "epsilon_after_correction": True,
    "mu": 0.3,
    "alpha": 0.75,
    "step_size": 0.2,
    "tau_eff": 3.0,
    "beta": 0.8,
    "beta1": 0.7,
    "beta2": 0.95,
    "initial_accumulator": 0.5,
    "client": {"name": "adam", "learning_rate": 0.01, "beta1": 0.6},
    "server": {"name": "adagrad", "learning_rate": 0.2, "epsilon": 1e-2},
    "preconditioners": [[1.0, 2.0], [3.0, 4.0]],
    "within_round": {"name": "linear", "initial": 1.0, "final": 0.5},
    "clip_norm": 3.0,
    "clip_value": 2.0,
    "weight_decay": 0.125,
    "value": 0.25,
    "initial": 0.25,
    "final": 0.125,
    "factor": 0.5,
    "every": 3.0,
    "power": 0.5,
    "length": 7,
    "values": [0.5, 0.25],
    "boundaries": [3],
    "schedule": {"name": "exponential", "initial": 0.5, "factor": 0.25},
}
OWN_VALUES = {"fednova": {"client": {"name": "momentum", "learning_rate": 0.01, "beta": 0.6}}}  # refuses adaptive ones
EVERY_PART = [(kind, name) for kind in KINDS for name in FACTORIES[kind]]


def built(kind, name):
    factory = FACTORIES[kind][name]
    values = VALUES | OWN_VALUES.get(name, {})
    return factory(**{key: values[key] for key in option_table(factory) if key in values})


@pytest.mark.parametrize(("kind", "name"), EVERY_PART)
def test_every_part_is_built_again_from_its_spec(kind, name):
    part = built(kind, name)
    again = from_spec(part.spec, kind)
    assert again == part and again is not part
    assert again.spec == part.spec and again.name == name


@pytest.mark.parametrize(("kind", "name"), EVERY_PART)
def test_a_spec_is_plain_data_that_json_and_toml_can_hold(kind, name):
    spec = {kind: built(kind, name).spec}
    assert json.loads(json.dumps(spec)) == spec
    assert tomllib.loads(to_toml(spec)) == spec


@pytest.mark.parametrize("name", list(FACTORIES["method"]))
def test_a_method_built_from_its_spec_trains_to_the_same_weights(name):
    method = built("method", name)
    task = ft.tasks.quadratic()
    one, other = (ft.train(task, m, rounds=3, local_steps=[1, 3]).params for m in (method, ft.from_spec(method.spec)))
    np.testing.assert_array_equal(one, other)


def test_a_spec_has_every_option_of_the_parts_in_it():
    method = ft.fedopt(ft.client.adam(0.1))
    assert method.spec == {
        "name": "fedopt",
        "client": {
            "name": "adam",
            "learning_rate": 0.1,
            "beta1": 0.9,
            "beta2": 0.999,
            "epsilon": 1e-7,
            "initial_accumulator": 0.0,
            "bias_correction": True,
            "lagged": False,
            "epsilon_after_correction": False,
        },
        "server": {"name": "sgd", "learning_rate": 1.0},
        "correction": "joint",
        "trace": "first_gradient",
        "client_state": "restart",
        "sampling": "uniform",
    }


def test_parts_that_differ_in_an_option_are_not_equal():
    assert ft.client.adam(0.1) != ft.client.adam(0.2) != ft.client.sgd(0.2)
    assert ft.fedopt(ft.client.sgd(0.1)) != ft.fedopt(ft.client.sgd(0.1), correction="none")


def halving(round_index):
    return 0.5**round_index


OWN_PARTS = {
    "a schedule": (lambda: ft.fedopt(ft.client.sgd(halving)), "test_spec.halving"),
    "an optax transformation": (lambda: ft.fedopt(ft.client.sgd(0.1), optax.lion(0.1)), "optax."),
    "a correction": (
        lambda: ft.fedopt(
            ft.client.sgd(0.1),
            correction=ft.Correction(
                lambda steps: {"update": steps.pseudo_gradient}, lambda mean, state: (mean["update"], state)
            ),
        ),
        "test_spec.",
    ),
    "a sampling": (
        lambda: ft.fedopt(ft.client.sgd(0.1), sampling=Sampling(uniform().draw, None, False)),
        "sampling.uniform",
    ),
    "a weighting": (
        lambda: ft.fedopt(ft.client.sgd(0.1), weighting=Weighting(lambda task: np.ones(2))),
        "test_spec.",
    ),
}


@pytest.mark.parametrize("which", OWN_PARTS)
def test_a_part_without_a_name_is_recorded_by_its_qualified_name_and_marked(which, tmp_path):
    build, qualified = OWN_PARTS[which]
    method = build()
    assert not is_rebuildable(method.spec) and qualified in json.dumps(method.spec)
    with pytest.raises(ValueError, match=r"written in Python.*pass the part itself"):
        ft.from_spec(method.spec)
    ft.train(ft.tasks.quadratic(), method, rounds=1, out=tmp_path / "run")
    config = (tmp_path / "run" / "config.toml").read_text()
    assert "from_python = true" in config and "rebuildable = false" in config and qualified in config


def test_a_part_that_was_changed_by_hand_is_not_taken_for_the_one_it_was():
    from dataclasses import replace

    plain = ft.client.adam(0.1)
    changed = replace(plain, move=ft.client.sgd(0.1).move)
    assert changed != plain and not is_rebuildable(changed.spec)


def test_an_option_that_a_part_does_not_have_is_refused_with_those_it_has():
    with pytest.raises(
        ValueError, match=r"adam has no beta \(did you mean 'beta[12]'\?\): it takes learning_rate, beta1"
    ):
        from_spec({"name": "adam", "learning_rate": 0.1, "beta": 0.5}, "client")
    with pytest.raises(ValueError, match="fedadam has no correction: it takes client_rate, server_rate"):
        ft.from_spec({"name": "fedadam", "client_rate": 0.1, "correction": "joint"})
    with pytest.raises(ValueError, match=r"method 'fedavgg' is not known \(did you mean 'fedavg'"):
        ft.from_spec("fedavgg")


def test_numbers_of_numpy_and_jax_are_recorded_as_numbers():
    spec = ft.client.sgd(np.float32(0.5)).spec
    assert spec == {"name": "sgd", "learning_rate": 0.5} and type(spec["learning_rate"]) is float
    assert ft.client.sgd(jnp.float32(0.5)).spec == spec

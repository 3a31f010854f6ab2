"""FedPD and FedSplit, which are defined for all clients per round: with constant steps they reach the minimiser."""

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.cli import main
from tests.methods.unequal_clients import STEPS, task

METHODS = {"fedpd": ft.methods.fedpd, "fedsplit": ft.methods.fedsplit}
OTHERS = {"momentum": ft.client.momentum(0.01), "adagrad": ft.client.adagrad(0.005)}


def distance(method, steps):
    """How far from the minimiser of the weighted objective a run ends."""
    return np.abs(ft.train(task(), method, rounds=1000, local_steps=steps).params - task().minimiser).max()


@pytest.mark.parametrize("steps", [STEPS, 40, 1], ids=["unequal", "many", "one"])
@pytest.mark.parametrize("name", METHODS)
def test_it_reaches_the_minimiser_of_the_weighted_objective_at_constant_steps(name, steps):
    """Both theories need nearly solved local problems; the fixed point is the same for any steps from y = x."""
    assert distance(METHODS[name](ft.client.sgd(0.01), step_size=0.1), steps) < 1e-8


def test_fedavg_does_not():
    assert distance(ft.methods.fedavg(0.01), STEPS) > 0.1


@pytest.mark.parametrize("client", OTHERS)
@pytest.mark.parametrize("name", METHODS)
def test_the_local_solver_may_be_any_optimizer(name, client):
    """Where the local gradient is 0 at x, no optimizer moves."""
    assert distance(METHODS[name](OTHERS[client], step_size=0.1), STEPS) < 1e-8


@pytest.mark.parametrize("name", METHODS)
def test_a_cohort_of_some_clients_is_refused_with_the_cure(name, capsys):
    method = METHODS[name](ft.client.sgd(0.01))
    with pytest.raises(ValueError, match=f"{name} needs all 4 clients in every round, not 2: set cohort to 4, or use"):
        ft.train(task(), method, rounds=1, local_steps=1, cohort=2)
    command = ["run", "quadratic", "--method", name, "--client-rate", "0.01", "--rounds", "1", "--cohort", "1"]
    assert main(command) == 2
    assert "needs all 2 clients in every round, not 1: set cohort to 2" in capsys.readouterr().err


@pytest.mark.parametrize("name", METHODS)
def test_clients_that_do_not_reply_keep_their_memory_and_the_fixed_point_stays(name):
    method = METHODS[name](ft.client.sgd(0.01), step_size=0.1)
    result = ft.train(task(), method, rounds=1000, local_steps=STEPS, availability=ft.Availability(dropout=0.3))
    assert result.history["missing"].sum() > 0
    np.testing.assert_allclose(result.params, task().minimiser, atol=1e-8)


@pytest.mark.parametrize("on_device", [True, False], ids=["device", "host"])
@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(name, on_device, tmp_path, monkeypatch):
    if not on_device:
        monkeypatch.setattr("fedtrue.engine.planning.MEMORY_SHARE", 0.0)
    arguments = {"local_steps": STEPS, "checkpoint_every": 4, "lanes": 1, "start": np.array([1.0, -1.0])}
    arguments["availability"] = ft.Availability(dropout=0.5)  # some have not replied yet when the run stops
    method = METHODS[name](ft.client.adam(0.01), step_size=0.1)
    whole = ft.train(task(noise=1.0), method, rounds=9, **arguments)
    ft.train(task(noise=1.0), method, rounds=1, out=tmp_path / "run", **arguments)
    parts = ft.train(task(noise=1.0), method, rounds=9, out=tmp_path / "run", resume=True, **arguments)
    np.testing.assert_array_equal(parts.params, whole.params)


@pytest.mark.parametrize("name", METHODS)
def test_only_the_update_travels_and_clients_keep_one_array(name):
    simulation = ft.Simulation(task(), METHODS[name](ft.client.sgd(0.01)))
    assert [leaf.shape for leaf in simulation.start().memory[0].values() if len(leaf)] == [(4, 2)]
    history = ft.train(task(), METHODS[name](ft.client.sgd(0.01)), rounds=1, local_steps=1).history
    assert (history["bytes_up"][0], history["bytes_down"][0]) == (4 * 16, 4 * 16)  # 4 clients × 2 weights × 8 bytes


@pytest.mark.parametrize("name", METHODS)
def test_diagnosis_finds_that_a_run_with_unequal_steps_has_converged(name, tmp_path):
    method = METHODS[name](ft.client.sgd(0.01), step_size=0.1)
    ft.train(task(), method, rounds=300, local_steps=STEPS, out=tmp_path)
    verdict = ft.diagnose(tmp_path, orders=2).verdict
    assert not verdict.biased and "has converged" in verdict.sentence


@pytest.mark.parametrize("name", METHODS)
def test_diagnosis_tells_a_run_that_has_not_converged_to_train_for_more_rounds(name, tmp_path):
    ft.train(task(), METHODS[name](ft.client.sgd(0.001), step_size=0.1), rounds=3, local_steps=STEPS, out=tmp_path)
    verdict = ft.diagnose(tmp_path, orders=2).verdict
    assert "train for more rounds" in verdict.sentence


@pytest.mark.parametrize("name", METHODS)
def test_what_has_no_such_fixed_point_is_refused(name):
    with pytest.raises(ValueError, match=f"{name}: with weight_decay its fixed point depends on the client's rate"):
        METHODS[name](ft.client.sgd(0.1, weight_decay=0.1))
    with pytest.raises(ValueError, match=f"{name}: step_size must be a finite number above 0, not 0"):
        METHODS[name](ft.client.sgd(0.1), step_size=0)

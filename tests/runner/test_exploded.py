"""A run with a round in which client updates exploded says so; one that converges, or is clipped, does not."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from run_folders import left_by

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.runner.exploded import Exploded, exploded_text, find_exploded
from fedtrue.runner.records import SUMMARY, read_lines

pytestmark = pytest.mark.usefixtures("quick_compilation")
FILE = """
import jax.numpy as jnp
import numpy as np
import fedtrue as ft

SLOPES = [1.0] * 30 + [1e4]  # one client's gradient is 10,000 times as long as the others'

def task(slopes=SLOPES):
    data = [{"slope": np.array([slope])} for slope in slopes]
    return ft.tasks.from_arrays(data, lambda key: jnp.zeros(()), lambda params, example: example["slope"] * params)

def harmless(): return task(SLOPES[:-1])
"""
OPTIONS = ["--cohort", "1", "--local-steps", "1", "--client", "sgd", "--client-rate", "0.5", "--correction", "none"]
OPTIONS += ["--lanes", "1", "--seed", "4", "--checkpoint-every", "10"]
CURE = "clip gradients (--set client.clip_norm=1) or lower the client learning rate"


@pytest.fixture
def own_task(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)


def records(norms, clients=None):
    """The columns of a run's records."""
    count = len(norms)
    given = np.ones(count) if clients is None else np.asarray(clients)
    return {"round": np.arange(count), "clients": given, "pseudo_gradient_norm": np.asarray(norms, float)}


def rounds_with_the_long_client(folder):
    return [line["round"] for line in read_lines(folder / "metrics.jsonl") if line["cohort"] == [30]]


# --- which rounds -----------------------------------------------------------------------------------------------------


def test_the_round_and_its_norm_are_named():
    # 19 of 21 norms are at most 60, and 15,830 is more than 50 · 60 = 3,000 and 10 · 200
    assert find_exploded(records([60, 200, 15_830, 3] + [4.0] * 17)) == (1, 2, 15_830, 60)


def test_later_rounds_that_are_as_long_are_counted():
    # 1,900 is not ten times 1,000, but it is 50 · 1 or more, as is 60
    found = find_exploded(records([1.0, 1, 1000, 1, 1900, 60, 40] + [1.0] * 93))
    assert found == Exploded(rounds=3, first=2, norm=1900, usual=1)


@pytest.mark.parametrize(
    "norms",
    [
        0.5 ** np.arange(100),  # linear convergence: round 0 is 2^90 times as long as most
        [1.0, 5.0, *[0.0] * 98],  # convergence in two rounds
        [1.0, 5.0, *[1e-16] * 50, 1e-13, *[1e-16] * 50],  # and rounding errors after it
        [0.0] * 20,
        [0.0] * 10 + [1.0] + [0.0] * 10,  # nothing is usual
        [900.0] + [1.0] * 50,  # the first round from random weights
        np.where(np.arange(100) % 8, 1.0, 500.0),  # an eighth of the rounds have a client with much more data
        [1.0, 1.0, 1e6],  # too few to know what is usual
        [],
    ],
)
def test_a_run_that_converges_or_whose_rounds_always_differ_names_none(norms):
    assert find_exploded(records(norms)) is None


def test_a_round_in_which_nobody_replied_has_no_norm():
    norms, clients = [0.0, 1.0] * 30 + [3000.0], [0, 1] * 30 + [1]
    assert find_exploded(records(norms, clients)) == (1, 60, 3000, 1)


@pytest.mark.parametrize("overflowed", [np.inf, np.nan])  # NaN: as read from a file, which has null
def test_a_norm_that_overflows_is_the_largest(overflowed):
    found = find_exploded(records([1.0] * 10 + [overflowed] + [1.0] * 10))
    assert found == (1, 10, np.inf, 1)
    assert "round 10: the mean update was so long that its norm overflowed" in exploded_text(found._asdict(), None)
    assert "overflowed" in exploded_text({**found._asdict(), "norm": None}, None)


def test_a_line_that_stands_for_several_rounds_tells_nothing():
    merged = records([1.0, 1, 1, 1000] + [1.0] * 20)
    assert find_exploded(merged) is not None
    assert find_exploded({**merged, "round": 10 * merged["round"] + 9}) is None


# --- what is said -----------------------------------------------------------------------------------------------------


def test_the_line_has_the_round_the_length_and_the_cure():
    assert exploded_text(Exploded(1, 2, 15_830, 3.0)._asdict(), None) == (
        "round 2: the mean update was 5,277 times as long as usual (norm 15,830), as client updates exploded: " + CURE
    )  # 15,830 / 3 = 5,276.7
    assert "round 2 and 3 more: the mean update was up to" in exploded_text(Exploded(4, 2, 90.0, 1.0)._asdict(), None)


def test_clipping_is_a_cure_only_for_clients_that_can_clip_and_do_not_yet():
    says = lambda method: exploded_text(Exploded(1, 2, 90.0, 1.0)._asdict(), method.spec)
    assert CURE in says(ft.fedopt(ft.client.sgd(0.1)))
    assert "exploded: lower the client learning rate" in says(ft.fedopt(ft.client.sgd(0.1, clip_norm=1.0)))
    assert "exploded: lower the client learning rate" in says(ft.methods.fedavg(0.1))


def test_run_resume_sweep_and_diagnose_say_so(own_task, tmp_path, capsys):
    assert main(["run", "own.py:task", *OPTIONS, "--rounds", "40", "--out", "whole"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert rounds_with_the_long_client(tmp_path / "whole") == [8, 9, 21]
    found = {"rounds": 3, "first": 8, "norm": 5000.0, "usual": 0.5}  # 0.5 · 10⁴, 0.5 · 1
    assert json.loads((tmp_path / "whole" / SUMMARY).read_text())["exploded"] == found
    assert shown.count("10,000 times as long as usual (norm 5,000)") == shown.count(CURE) == 1
    assert "round 8 and 2 more: the mean update was up to" in shown

    assert main(["run", "own.py:task", *OPTIONS, "--rounds", "20", "--out", "parts"]) == 0
    capsys.readouterr()
    assert main(["resume", "parts", "--rounds", "40", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exploded"] == found
    assert left_by(tmp_path / "parts") == left_by(tmp_path / "whole")

    assert main(["diagnose", "whole", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exploded"] == found
    assert main(["diagnose", "whole"]) == 0
    assert CURE in " ".join(capsys.readouterr().out.split())


def test_a_sweep_marks_its_cells_and_names_the_cure_once(own_task, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    settings = 'task = "own.py:task"\nrounds = 40\ncohort = 1\nlocal_steps = 1\nseed = 4\ncorrection = "none"\n'
    rates = "client.learning_rate = [0.5, 0.25]\n"
    (tmp_path / "s.toml").write_text(settings + '[client]\nname = "sgd"\n[sweep.product]\n' + rates)
    assert main(["sweep", "s.toml", "--out", "cells"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("finished, exploded") == 2 and " ".join(shown.split()).count(CURE) == 1
    assert "2 cells have such rounds" in " ".join(shown.split())
    assert main(["sweep", "s.toml", "--out", "cells", "--json"]) == 0
    assert [cell["exploded"]["norm"] for cell in json.loads(capsys.readouterr().out)] == [5000, 2500]


@pytest.mark.parametrize("changed", [["own.py:harmless"], ["own.py:task", "--set", "client.clip_norm=1"]])
def test_a_run_without_such_a_round_says_nothing(own_task, tmp_path, capsys, changed):
    assert main(["run", *changed, *OPTIONS, "--rounds", "40", "--out", "run"]) == 0
    assert changed == ["own.py:harmless"] or rounds_with_the_long_client(tmp_path / "run") == [8, 9, 21]
    assert "exploded" not in capsys.readouterr().out + (tmp_path / "run" / SUMMARY).read_text()


def test_the_result_in_python_has_it():
    data = [{"slope": np.array([slope])} for slope in [1.0] * 30 + [1e4]]
    task = ft.tasks.from_arrays(data, lambda key: jnp.zeros(()), lambda params, example: example["slope"] * params)
    method = ft.fedopt(ft.client.sgd(0.5), correction="none")
    result = ft.train(task, method, rounds=40, cohort=1, local_steps=1, seed=4)
    assert np.flatnonzero(result.history["cohort"].ravel() == 30).tolist() == [8, 9, 21]
    assert result.summary["exploded"] == {"rounds": 3, "first": 8, "norm": 5000.0, "usual": 0.5}
    assert repr(result).startswith("Result(finished after 40 rounds, round 8 exploded, final")


def test_a_run_that_converges_to_a_norm_of_0_says_nothing():
    task = ft.tasks.quadratic(np.ones((2, 2)), np.eye(2))  # a step of 0.5 halves the distance from each minimiser
    result = ft.train(task, ft.fedopt(ft.client.sgd(0.5), correction="none"), rounds=1200, local_steps=1)
    assert result.history["pseudo_gradient_norm"][-1] < 1e-15 * result.history["pseudo_gradient_norm"][0]
    assert "exploded" not in result.summary

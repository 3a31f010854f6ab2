"""The code of the pages for users runs, from top to bottom, and ends where the text says."""

import contextlib
import json
import re
from pathlib import Path

import pytest

import fedtrue as ft
from fedtrue.spec import FACTORIES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def run_page(tmp_path_factory):
    """`run_page("own_method", anchored=0)` runs the page's Python where its first TOML block is `anchored.toml`.

    It returns the page's variables, and `folder`, where it ran. Methods that the page names are forgotten afterwards.
    """
    methods = dict(FACTORIES["method"])

    def run(name, **files):
        folder, text = tmp_path_factory.mktemp(name), (DOCS / f"{name}.md").read_text()
        blocks = lambda language: re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
        for file, number in files.items():
            (folder / f"{file}.toml").write_text(blocks("toml")[number])
        variables = {"__name__": name, "folder": folder}
        with contextlib.chdir(folder):
            exec(compile("\n".join(blocks("python")), f"{name}.md", "exec"), variables)
        return variables

    yield run
    FACTORIES["method"].clear()
    FACTORIES["method"].update(methods)


@pytest.fixture(scope="module")
def own_method(run_page):
    return run_page("own_method", anchored=0)


def test_the_methods_of_the_page_are_the_librarys(own_method):
    """FedProx and SCAFFOLD's option II, bit for bit and to rounding."""
    task, steps = ft.tasks.quadratic(noise=1.0), [2, 7]
    after = lambda method: ft.train(task, method, rounds=10, local_steps=steps).params
    sgd = ft.client.sgd(0.01)
    assert (after(own_method["anchored"](sgd, mu=0.3)) == after(ft.methods.fedprox(sgd, mu=0.3))).all()
    assert after(own_method["control_variates"](sgd)) == pytest.approx(after(ft.methods.scaffold(sgd)), rel=1e-12)


def test_control_variates_reach_the_minimiser_as_the_page_says(own_method):
    assert own_method["error"] < 1e-12


def test_a_method_with_a_name_is_recorded_swept_and_reported(own_method):
    folder = own_method["folder"]
    config = ft.load_run(folder / "runs/anchored").config
    assert (config["method"], config["mu"]) == ("anchored", 0.1)
    assert ft.diagnose(folder / "runs/anchored").verdict.cure == "use --correction joint"
    assert [run.config["mu"] for run in own_method["runs"]] == [0.0, 0.0, 0.1, 0.1, 1.0, 1.0]
    assert "mu 0.1" in (folder / own_method["page"]).read_text()


@pytest.mark.slow
def test_the_distances_on_the_page_on_pytorch_are_those_that_are_measured(run_page):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedtrue[torch]'")
    page = run_page("pytorch")
    said = dict(re.findall(r"([\d.]+) with `(\w+)`", (DOCS / "pytorch.md").read_text()))
    assert len(said) == 3
    for distance, correction in said.items():
        assert page["distances"][correction] == pytest.approx(float(distance), rel=0.05)
    assert page["Yogi"] in ft.torch.rules.RULES
    del ft.torch.rules.RULES[page["Yogi"]]


def test_the_cost_on_the_page_on_pytorch_is_the_recorded_one():
    record = json.loads((DOCS.parent / "benchmarks/results/torch-trace-cpu.json").read_text())
    said = re.findall(r"^\| .+ \| ([\d.]+) \| ([\d.]+) \| (\d+) % \|$", (DOCS / "pytorch.md").read_text(), re.MULTILINE)
    assert len(said) == len(record["rows"])
    for (without, traced, more), row in zip(said, record["rows"]):
        assert (float(without), float(traced)) == (round(row["ms_without"], 2), round(row["ms_traced"], 2))
        assert int(more) == abs(round(100 * (row["ms_traced"] / row["ms_without"] - 1)))


def test_the_distances_on_the_page_are_those_that_are_measured(own_method):
    distance = own_method["distance"]
    assert distance("none", 1e-4) == pytest.approx(0.91, rel=0.01)
    assert distance("joint", 1e-4) == pytest.approx(0.0040, rel=0.01)
    assert distance("joint", 1e-3) == pytest.approx(0.042, rel=0.01)


def test_the_sampling_of_the_page_takes_one_half_of_the_clients_after_the_other(run_page):
    task = ft.tasks.quadratic([[1.0]] * 6, [[float(i)] for i in range(6)])
    method = run_page("sampling")["method"]
    cohorts = ft.train(task, method, rounds=4, cohort=2, local_steps=1).history["cohort"]
    assert (cohorts % 2).tolist() == [[0, 0], [1, 1], [0, 0], [1, 1]]

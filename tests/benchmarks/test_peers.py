"""The comparison with peers compares the same thing. Smallest size, no peer installed: for correctness, not time."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "benchmarks" / "peers"
LARGER = ("shakespeare", "cnn", "pooled")  # workloads that take longer to compile


@pytest.fixture
def module(monkeypatch):
    """Imports a file of benchmarks/peers by its name."""
    monkeypatch.syspath_prepend(str(PEERS))
    return importlib.import_module


@pytest.mark.parametrize("workload", ["tags", *(pytest.param(name, marks=pytest.mark.slow) for name in LARGER)])
def test_fedtrue_and_the_bare_jax_loop_have_the_same_weights_after_the_first_round(workload, module, tmp_path):
    bench = module("bench")
    files = [tmp_path / "jax.npz", tmp_path / "fedtrue.npz"]
    for name, weights in zip(("jax", "fedtrue"), files):
        bench.measure(bench.FRAMEWORKS[name], workload, ["--small", "--rounds", "1"], None, weights)
    assert bench.largest_difference(*files) < bench.TOLERANCE
    first = module("workloads").Workload(workload).weights()
    moved = {name: np.abs(np.load(files[0])[name] - first[name]).max() for name in first}
    assert min(moved.values()) > 1e-5  # so that agreement means something


def test_a_runner_with_other_weights_is_not_counted(module, tmp_path):
    bench = module("bench")
    np.savez(tmp_path / "other.npz", **{n: w + 1e-3 for n, w in module("workloads").Workload("tags").weights().items()})
    with pytest.raises(bench.Mismatch, match="computes something else"):
        options = ["--small", "--rounds", "1"]
        bench.measure(bench.FRAMEWORKS["jax"], "tags", options, tmp_path / "other.npz", tmp_path / "jax.npz")


def test_an_interrupted_comparison_goes_on_where_it_stopped(module):
    bench = module("bench")
    everything = bench._missing({"runs": []}, ["a", "b"], ["cnn"], 2)
    assert everything == [(0, "cnn", "a"), (0, "cnn", "b"), (1, "cnn", "b"), (1, "cnn", "a")]  # second pass backwards
    done = {"runs": [{"pass": 0, "workload": "cnn", "framework": "a"}]}
    assert bench._missing(done, ["a", "b"], ["cnn"], 2) == everything[1:]


def run_of(framework, pass_index, seconds):
    return {
        "framework": framework,
        "workload": "cnn",
        "pass": pass_index,
        "seconds": seconds,
        "examples": [100] * len(seconds),
        "versions": {"jax": "0.10.2"},
        "peak_mb": 300,
        "weights_differ_by": 2e-7,
        "date": "2026-01-01",
    }


def test_tables_show_medians_of_all_passes_and_what_starting_took(module):
    machine = {"cpu": "a CPU", "cores": 2, "memory_gb": 8, "system": "Linux", "python": "3.11.7"}
    runs = [
        run_of("fedtrue", 0, [3.0, 1.0, 0.1, 0.1, 0.4]),
        run_of("fedtrue", 1, [3.0, 1.0, 0.2, 0.2, 0.2]),
        run_of("pfl", 0, [1.0, 0.5, 0.6, 0.5, 0.4]),
    ]
    text = module("table").tables({"machine": machine, "runs": runs}, {"fedtrue": "fedtrue", "pfl": "pfl-research"})
    # median of 0.1 0.1 0.4 0.2 0.2 0.2; 100 examples in 0.2 s; 4 s of warm-up less two rounds of 0.2 s
    assert "| fedtrue | 0.200 | 0.100, 0.200 | 1.00 | 500 | 3.6 | 300 | 2e-07 |" in text
    assert "| pfl-research | 0.500 | 0.500 | 2.50 | 200 | 0.5 | 300 | 2e-07 |" in text  # 0.5 / 0.2


def test_the_page_shows_what_was_measured(module):
    bench = module("bench")
    if not bench.RESULTS.exists():
        pytest.skip("benchmarks/results/peers.json is not there: nothing is measured yet")
    results = json.loads(bench.RESULTS.read_text())
    text = bench.tables(results, {name: framework.title for name, framework in bench.FRAMEWORKS.items()})
    assert text in bench.PAGE.read_text()


def test_tables_without_results_say_what_to_do(tmp_path):
    script = (
        f"import sys; sys.path.insert(0, {str(PEERS)!r}); import bench, pathlib; sys.argv = ['bench.py', '--table'];"
    )
    script += f"bench.RESULTS = pathlib.Path({str(tmp_path)!r}) / 'peers.json'; sys.exit(bench.main())"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert answer.returncode == 2
    assert "run bench.py without --table first" in answer.stdout

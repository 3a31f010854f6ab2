"""One device per CPU core, on request and never by an import."""

import os
import subprocess
import sys

import jax
import pytest

import fedtrue as ft


def finished(program, environment):
    others = {key: value for key, value in os.environ.items() if "DEVICE" not in key and key != "XLA_FLAGS"}
    environment = {**others, "JAX_PLATFORMS": "cpu", **environment}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)


def output_of(program):
    return finished(program, {}).stdout


def test_an_import_changes_nothing():
    assert output_of("import fedtrue, jax; print(jax.device_count())") == "1\n"


def test_every_core_is_a_device():
    program = "import fedtrue as ft, jax; ft.use_all_cores(); print(jax.device_count())"
    assert output_of(program) == f"{len(os.sched_getaffinity(0))}\n"


TASK_FILE = """
import jax.numpy as jnp, numpy as np, fedtrue as ft
task = ft.tasks.from_arrays(
    [{"x": np.ones((2, 3))}] * 4,
    init=lambda key: jnp.zeros((10_000, 3)),  # large enough to fill a core
    loss=lambda weights, example: jnp.sum((weights - example["x"]) ** 2),
)
"""


@pytest.mark.slow
def test_the_command_line_uses_every_core_and_respects_a_number_that_is_set(tmp_path):
    (tmp_path / "own.py").write_text(TASK_FILE)

    def messages(name, environment):
        command = ["run", f"{tmp_path / 'own.py'}:task", "--rounds", "1"]
        command += ["--client-rate", "0.1", "--out", str(tmp_path / name)]
        return finished(f"from fedtrue.cli import main; main({command})", environment).stderr

    every = len(os.sched_getaffinity(0))
    assert f"1 lane on each of {every} devices" in messages("all", {})
    assert "lanes: 1 lane, " in messages("one", {"JAX_NUM_CPU_DEVICES": "1"})


def test_too_late_is_said():
    found = jax.device_count("cpu")  # JAX has started
    assert ft.use_all_cores(found) == found  # nothing to change
    with pytest.raises(RuntimeError, match=r"call ft\.use_all_cores before any computation"):
        ft.use_all_cores(found + 1)

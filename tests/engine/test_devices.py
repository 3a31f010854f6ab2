"""One device per CPU core, on request and never by an import."""

import os
import subprocess
import sys

import jax
import pytest

import fedtrue as ft


def output_of(program):
    environment = {key: value for key, value in os.environ.items() if "DEVICE" not in key} | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True).stdout


def test_an_import_changes_nothing():
    assert output_of("import fedtrue, jax; print(jax.device_count())") == "1\n"


def test_every_core_is_a_device():
    program = "import fedtrue as ft, jax; ft.use_all_cores(); print(jax.device_count())"
    assert output_of(program) == f"{len(os.sched_getaffinity(0))}\n"


def test_too_late_is_said():
    found = jax.device_count("cpu")  # JAX has started
    assert ft.use_all_cores(found) == found  # nothing to change
    with pytest.raises(RuntimeError, match=r"call ft\.use_all_cores before any computation"):
        ft.use_all_cores(found + 1)

"""One device per CPU core, so that clients train in parallel."""

import os
from contextlib import suppress

import jax

FORCED_DEVICES = "xla_force_host_platform_device_count"  # XLA's own flag for the same


def use_all_cores(cores: int | None = None) -> int:
    """Makes every CPU core a device of its own, on which one client trains while others train on the other cores.

    JAX has one CPU device by default, and most operations of small batches use one core of it. Call this before
    anything is computed: the number of devices cannot change later. The command line does, `import fedtrue` does not.

    Args:
        cores: how many; by default all that this process may use.

    Returns:
        The number of CPU devices.

    >>> import subprocess, sys
    >>> program = "import fedtrue as ft, jax; ft.use_all_cores(3); print(jax.device_count())"
    >>> subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    '3\\n'
    """
    wanted = cores or _cores()
    try:
        jax.config.update("jax_num_cpu_devices", wanted)
    except RuntimeError:  # JAX has started
        found = jax.device_count("cpu")
        if found != wanted:
            devices = f"{found} CPU device{'s'[: found > 1]}"
            cure = "call ft.use_all_cores before any computation"
            raise RuntimeError(f"JAX has started with {devices}: {cure}") from None
    return wanted


def use_all_cores_unless_set() -> None:
    """The same for the command line: nothing changes if JAX has started, or if the user has set a number of devices."""
    is_set = jax.config.jax_num_cpu_devices > 0 or FORCED_DEVICES in os.environ.get("XLA_FLAGS", "")  # type: ignore[attr-defined]
    if not is_set:
        with suppress(RuntimeError):
            use_all_cores()


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""A federation on this machine's devices: everything placed, one program compiled, rounds run on demand."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedtrue.algorithm.method import Method
from fedtrue.data.batches import on_device, steps_per_epoch
from fedtrue.engine.program import Federation, RoundInfo, Shape, State, initial_state, rounds_program
from fedtrue.tasks.task import Task

ROUNDS_PER_DISPATCH = 1024  # at most; the buffer of round infos has this length


class Simulation:
    """`state = simulation.start(params)`, then `state, infos = simulation.run(state, rounds)` as often as wanted."""

    def __init__(
        self,
        task: Task,
        method: Method,
        *,
        seed: int = 0,
        cohort: int | None = None,
        local_steps: int | Sequence[int] | None = None,
        rate_multipliers: Sequence[float] | None = None,
        lanes: int | None = None,
    ):
        clients = len(task.train)
        self.task, self.method, self.seed = task, method, seed
        steps = _local_steps(task, local_steps)
        chosen_cohort = _cohort_size(cohort if cohort is not None else task.cohort, clients)
        multipliers = _rate_multipliers(rate_multipliers, clients)
        weights = task.client_weights(method.weighting or task.weighting)
        devices = jax.local_devices()
        per_device = lanes or default_lanes(chosen_cohort, len(devices))
        used = devices[: max(1, min(len(devices), chosen_cohort // per_device))]
        self.shape = Shape(
            cohort=chosen_cohort,
            lanes=per_device * len(used),
            batch_size=task.batch_size,
            largest_client=int(task.train.sizes.max()),
            epochs=int(np.max(-(-steps // steps_per_epoch(task.train.sizes, task.batch_size)))),
        )
        real = jnp.result_type(float)
        self.federation = Federation(
            on_device(task.train.columns),
            jnp.asarray(task.train.starts, jnp.int32),
            jnp.asarray(task.train.sizes, jnp.int32),
            jnp.asarray(steps, jnp.int32),
            jnp.asarray(multipliers, real),
            jnp.asarray(weights, real),
            jnp.asarray(task.client_weights("examples"), real),
        )
        mesh = Mesh(np.asarray(used), ("lanes",)) if len(used) > 1 else None
        run = rounds_program(method, task.loss, self.shape, mesh)
        self._empty_infos = run.empty_infos  # type: ignore[attr-defined]
        self._run = jax.jit(run, donate_argnums=(2, 4))

    def start(self) -> State:
        """The state before round 0."""
        params = self.task.init(jax.random.key(self.seed))
        return initial_state(self.method, self.task.loss, params, len(self.task.train))

    def run(self, state: State, rounds: int) -> tuple[State, RoundInfo]:
        """`rounds` more rounds in one dispatch (at most ROUNDS_PER_DISPATCH), and what people look at, as NumPy."""
        seed = jnp.uint32(self.seed)
        infos = self._empty_infos(self.federation, seed, state, ROUNDS_PER_DISPATCH)
        state, infos = self._run(self.federation, seed, state, jnp.int32(rounds), infos)
        return state, jax.tree.map(lambda leaf: np.asarray(leaf[:rounds]), infos)


def default_lanes(cohort: int, devices: int) -> int:
    """Lanes a device."""
    return -(-cohort // devices)


def _cohort_size(cohort: int | None, clients: int) -> int:
    if cohort is None:
        return clients
    if not 1 <= cohort <= clients:
        raise ValueError(f"cohort must be between 1 and the {clients} clients there are, not {cohort}")
    return int(cohort)


def _local_steps(task: Task, local_steps: int | Sequence[int] | None) -> np.ndarray:
    """Local steps a client: as given, else `local_epochs` passes over its data."""
    sizes = np.asarray(task.train.sizes)
    if local_steps is None:
        return steps_per_epoch(sizes, task.batch_size) * task.local_epochs
    steps = np.asarray(local_steps)
    if steps.ndim == 0:
        steps = np.full(len(sizes), local_steps)
    if steps.shape != sizes.shape:
        raise ValueError(f"local_steps has {steps.size} entries for {len(sizes)} clients: give one number, or one each")
    if not np.issubdtype(steps.dtype, np.integer) or (steps < 1).any():
        raise ValueError(f"local_steps must be whole numbers at least 1, not {local_steps!r}")
    return steps


def _rate_multipliers(multipliers: Sequence[float] | None, clients: int) -> np.ndarray:
    if multipliers is None:
        return np.ones(clients)
    gamma = np.asarray(multipliers, np.float64)
    if gamma.shape != (clients,):
        raise ValueError(f"rate_multipliers has {gamma.size} entries for {clients} clients: give one each")
    if not (np.isfinite(gamma).all() and (gamma > 0).all()):
        raise ValueError(f"rate_multipliers must be finite and above 0, not {list(multipliers)}")
    return gamma

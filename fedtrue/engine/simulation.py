"""A federation on this machine's devices: everything placed, one program compiled, rounds run on demand."""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedtrue.algorithm.checks import whole
from fedtrue.algorithm.method import Method
from fedtrue.data.batches import on_device, steps_per_epoch
from fedtrue.engine.capacity import choose_lanes, free_bytes, lane_bytes
from fedtrue.engine.program import Federation, RoundInfo, Shape, State, initial_state, many_rounds, one_round, sampled
from fedtrue.engine.window import Window, column_bytes
from fedtrue.tasks.task import Task

DATA_SHARE = 0.5  # of the free memory that data may take; else it stays on the host
ROUNDS_PER_DISPATCH = 1024  # at most; the buffer of round infos has this length


class Simulation:
    """`state = simulation.start()`, then `state, infos = simulation.run(state, first_round, rounds)`, again and again.

    With a `grid` (a tree of arrays with a leading axis of cells) `method` is a function of one cell's values, and all
    cells train together in one program: states and infos get the cells as their leading axis.
    """

    def __init__(
        self,
        task: Task,
        method: Method | Callable[[Any], Method],
        *,
        grid: Any = None,
        seed: int = 0,
        cohort: int | None = None,
        local_steps: int | Sequence[int] | None = None,
        rate_multipliers: Sequence[float] | None = None,
        lanes: int | None = None,
        data_on_device: bool | None = None,
    ):
        self.task, self.seed, self.grid = task, seed, grid
        self.method_of: Callable[[Any], Method] = (lambda cell: method) if isinstance(method, Method) else method
        steps = task.steps_of_clients(local_steps)
        chosen_cohort = _cohort_size(cohort if cohort is not None else task.cohort, len(task.train))
        whole("seed", seed, high=2**32 - 1)
        if lanes is not None:
            whole("lanes", lanes, low=1)
        devices = jax.local_devices()
        params = jax.eval_shape(task.init, jax.random.key(0))
        lane = lane_bytes(self._first_method(), task.loss, params) * self.cells
        self.lanes = choose_lanes(steps, chosen_cohort, params, lane, devices, lanes, self.cells)
        used = devices[: self.lanes.devices]
        self.mesh = Mesh(np.asarray(used), ("lanes",)) if len(used) > 1 else None
        self.shape = Shape(
            cohort=chosen_cohort,
            lanes=self.lanes.per_device * self.lanes.devices,
            batch_size=task.batch_size,
            largest_client=int(task.train.sizes.max()),
            epochs=int(np.max(-(-steps // steps_per_epoch(task.train.sizes, task.batch_size)))),
            shuffle=task.shuffle,
        )
        fits = column_bytes(task.train) <= DATA_SHARE * free_bytes(devices[0])
        on_host = not (fits if data_on_device is None else data_on_device)
        self._window = Window(task.train, chosen_cohort, ROUNDS_PER_DISPATCH) if on_host else None
        self.rounds_per_dispatch = self._window.rounds if self._window else ROUNDS_PER_DISPATCH
        weighting = self._first_method().weighting
        columns = {} if self._window else on_device(task.train.columns)
        self.federation = self._placed(_federation(task, columns, weighting, steps, rate_multipliers))
        self._next: tuple[int, Federation] | None = None  # the first round of the window prepared ahead, and the window
        self._cohorts = jax.jit(self._cohorts_from)
        self._run = jax.jit(self._cells(self._run_cell), donate_argnums=(4, 5))
        self._empty_infos = jax.jit(self._cells(self._empty_infos_of_cell))

    def start(self) -> State:
        """The state before round 0."""
        params = self.task.init(jax.random.key(self.seed))
        clients = len(self.task.train)
        initial = self._cells(lambda cell: initial_state(self.method_of(cell), self.task.loss, params, clients))
        return self._placed(initial(self.grid))

    def run(self, state: State, first_round: int, rounds: int) -> tuple[State, RoundInfo]:
        """`rounds` more rounds in one dispatch (at most `rounds_per_dispatch`), and what people look at."""
        federation = self._federation_at(first_round)
        infos = self._empty_infos(self.grid, federation, state)
        state, infos = self._run(self.grid, federation, jnp.int32(first_round), jnp.int32(rounds), state, infos)
        self._prepare(first_round + rounds)  # the device is computing meanwhile
        rows = np.s_[:rounds] if self.grid is None else np.s_[:, :rounds]
        return state, jax.tree.map(lambda leaf: np.asarray(leaf[rows]), infos)

    def _federation_at(self, first_round: int) -> Federation:
        if self._next is None or self._next[0] != first_round:
            self._prepare(first_round)
        return self.federation if self._next is None else self._next[1]

    def _prepare(self, first_round: int) -> None:
        """Fills the window of the rounds to come, when the data stays on the host."""
        if self._window is not None:
            columns, starts = self._window.filled(np.asarray(self._cohorts(jnp.int32(first_round))))
            columns, starts = self._placed((columns, starts))
            self._next = first_round, self.federation._replace(columns=columns, starts=starts)

    def _placed(self, tree: Any) -> Any:
        """On every device from the start, as the program's results are: else the second dispatch compiles again."""
        return tree if self.mesh is None else jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))

    def _cohorts_from(self, first_round: Any) -> Any:
        method, sizes, seed = self._first_method(), self.federation.sampling_sizes, jnp.uint32(self.seed)
        drawn = lambda r: sampled(method, sizes, self.shape.cohort, seed, first_round + r)
        return jax.lax.map(drawn, jnp.arange(self.rounds_per_dispatch))

    def _run_cell(
        self, cell: Any, federation: Federation, first_round: Any, rounds: Any, state: State, infos: RoundInfo
    ) -> tuple[State, RoundInfo]:
        return many_rounds(self._round_of_cell(cell, federation), first_round, rounds, state, infos)

    def _round_of_cell(self, cell: Any, federation: Federation) -> Callable[[Any, State], tuple[State, RoundInfo]]:
        seed = jnp.uint32(self.seed)
        return partial(one_round, self.method_of(cell), self.task.loss, self.shape, self.mesh, federation, seed)

    def _empty_infos_of_cell(self, cell: Any, federation: Federation, state: State) -> RoundInfo:
        shapes = jax.eval_shape(self._round_of_cell(cell, federation), jnp.int32(0), state)[1]
        return jax.tree.map(lambda leaf: jnp.zeros((ROUNDS_PER_DISPATCH, *leaf.shape), leaf.dtype), shapes)

    def _cells(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(cell, …)` over the grid's cells; states and infos have the cells as an axis, all else is shared.

        The grid is an argument of the program, so that another one of as many cells needs no new compilation.
        """
        if self.grid is None:
            return function

        def over_cells(grid: Any, *arguments: Any) -> Any:
            own = [isinstance(argument, State | RoundInfo) for argument in arguments]
            if self.cells > 1:
                return jax.vmap(function, (0, *(0 if mine else None for mine in own)))(grid, *arguments)
            cell, *only = jax.tree.map(lambda leaf: leaf[0], (grid, *(a for a, mine in zip(arguments, own) if mine)))
            alone = iter(only)  # a single cell is not batched, which CPUs like better
            result = function(cell, *(next(alone) if mine else argument for argument, mine in zip(arguments, own)))
            return jax.tree.map(lambda leaf: leaf[None], result)

        return over_cells

    def _first_method(self) -> Method:
        return self.method_of(None if self.grid is None else jax.tree.map(lambda values: values[0], self.grid))

    def each_cell(self, tree: Any) -> list[Any]:
        """A state or infos cell by cell; without a grid there is one."""
        if self.grid is None:
            return [tree]
        return [jax.tree.map(operator.itemgetter(cell), tree) for cell in range(self.cells)]

    def from_cells(self, states: Sequence[State]) -> State:
        """The way back: the state that `run` takes, from one state a cell."""
        stacked = states[0] if self.grid is None else jax.tree.map(lambda *leaves: np.stack(leaves), *states)
        return self._placed(jax.tree.map(jnp.asarray, stacked))

    @property
    def cells(self) -> int:
        """How many runs train together."""
        return 1 if self.grid is None else len(jax.tree.leaves(self.grid)[0])


def _federation(
    task: Task, columns: Any, weighting: str | None, steps: np.ndarray, rate_multipliers: Sequence[float] | None
) -> Federation:
    real = jnp.result_type(float)
    return Federation(
        columns,
        jnp.asarray(task.train.starts, jnp.int32),
        jnp.asarray(task.train.sizes, jnp.int32),
        jnp.asarray(steps, jnp.int32),
        jnp.asarray(task.multipliers_of_clients(rate_multipliers), real),
        jnp.asarray(task.client_weights(weighting), real),
        jnp.asarray(task.client_weights("examples"), real),
    )


def _cohort_size(cohort: int | None, clients: int) -> int:
    if cohort is None:
        return clients
    return whole("cohort", cohort, low=1, high=clients)

"""A federation on this machine's devices: planned, placed, and run round by round or many rounds at once."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedtrue.algorithm.availability import Availability
from fedtrue.algorithm.checks import check_int
from fedtrue.algorithm.interface import ServerState
from fedtrue.algorithm.method import Method
from fedtrue.data.batches import device_rows, on_device
from fedtrue.engine.arguments import check_run
from fedtrue.engine.planning import ROUNDS_PER_DISPATCH, known_places, plan_simulation
from fedtrue.engine.round import (
    RoundInfo,
    Setting,
    State,
    client_memory,
    draw_cohort,
    initial_state,
    many_rounds,
    one_round,
)
from fedtrue.engine.step_dispatch import StepDispatch, StepSeconds
from fedtrue.engine.store import HostMemory, from_device, rows_of, to_device, with_rows
from fedtrue.engine.window import Window
from fedtrue.federation import Federation, federation_of
from fedtrue.lowering import Program, slow_in_loops
from fedtrue.names import look_up
from fedtrue.tasks.task import Task
from fedtrue.types import Params

DISPATCHES = {
    "round": "many rounds are one program",
    "step": "every local step is a program",
    "timed": "the faster of the two, by timing a few steps",
}


class SimulationState(NamedTuple):
    """What one round hands to the next. It can be used once: its arrays are given to the next state."""

    server: ServerState
    memory: Any  # what clients keep between rounds, on the devices or, if it is large, on the host
    round: int  # rounds done

    @property
    def params(self) -> Params:
        """The server's weights."""
        return self.server.params


class Simulation:
    """Rounds on demand: `state = simulation.start()`, then `state, info = simulation.round(state)`, again and again.

    `simulation.run(state, rounds)` is many rounds in one compiled loop, with the same results.

    After `simulation.seed = 1` the next run has other weights, cohorts and batches; nothing is compiled again.

    With a `grid` (a tree of arrays with a leading axis of cells) `method` is a function of one cell's values, and all
    cells train together in one program: states and infos get the cells as their leading axis.

    >>> import fedtrue as ft
    >>> from fedtrue.precision import float64
    >>> with float64():
    ...     simulation = ft.Simulation(ft.tasks.quadratic(), ft.fedopt(ft.client.sgd(0.01)), seed=0)
    ...     state = simulation.start()
    ...     for _ in range(3):
    ...         state, info = simulation.round(state)
    >>> state.round, int(info.clients)
    (3, 2)
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
        availability: Availability | None = None,
        dispatch: str | None = None,
        data_on_device: bool | None = None,
        memory_on_device: bool | None = None,
    ):
        self.task, self.grid, self.availability = task, grid, availability
        self._seed = check_int("seed", seed, high=2**32 - 1)
        self.method_of: Callable[[Any], Method] = (lambda cell: method) if isinstance(method, Method) else method
        check_run(task, method if grid is None else self._first_method(), availability)
        first = self._first_method()
        self.plan = plan_simulation(
            task,
            first,
            cells=self.cells,
            cohort=cohort,
            local_steps=local_steps,
            lanes=lanes,
            data_on_device=data_on_device,
            memory_on_device=memory_on_device,
        )
        federation = federation_of(task, first, local_steps, rate_multipliers, columns={})
        if availability is not None:
            federation = federation.with_steps(availability.steps(task.steps_of_clients(local_steps), seed))
        self._place(federation)
        self._compile()
        self.dispatch = dispatch or self._default_dispatch()
        look_up("dispatch", DISPATCHES, self.dispatch)
        if self.dispatch != "round" and grid is not None:
            raise ValueError(f"dispatch {self.dispatch!r} is for single runs: use 'round' for runs that train together")
        self.step_seconds: StepSeconds | None = None  # what a local step took, if that was measured

    def _place(self, federation: Federation) -> None:
        """Data and clients on the devices, or the window through which they get there."""
        devices, plan = self.plan.devices, self.plan
        self.mesh = Mesh(np.asarray(devices), ("lanes",)) if len(devices) > 1 else None
        places = known_places(self._first_method(), len(federation), plan.cohort)
        rounds = plan.rounds_per_dispatch
        self._buffer_rows = min(places * rounds, len(federation))  # of what clients keep, if that lies on the host
        self._window = Window(self.task.train, places, rounds) if plan.data_on_host else None
        if self._window is None:
            federation = federation.with_columns(on_device(self.task.train.columns), federation.starts)
        self.federation = self._placed(federation)
        self._next: tuple[tuple[int, int], Federation] | None = None  # a window prepared ahead: seed, first round; data

    def _compile(self) -> None:
        """Nothing is compiled yet: each program is, when it first runs."""
        self._step_dispatch = StepDispatch(len(self.plan.devices))
        self._cohorts = jax.jit(self._cohorts_from)
        self._one_round = jax.jit(self._round_of_cell, inline=True)  # traced once: for the shapes of infos and the loop
        own, shared = 0, None  # axes of cells: states and infos have one
        axes = (own, shared, shared, shared, shared, shared, own, own)
        self._run = Program(self._over_cells(self._run_cell, axes), donate_argnums=(6, 7))
        self._empty_infos = jax.jit(self._over_cells(self._empty_infos_of_cell, (own, shared, shared, own)))

    @property
    def seed(self) -> int:
        """Of weights, cohorts and batches."""
        return self._seed

    @seed.setter
    def seed(self, seed: int) -> None:
        if self.availability is not None:
            raise ValueError("the seed decides how fast the clients are: make another Simulation for another seed")
        self._seed = check_int("seed", seed, high=2**32 - 1)

    @property
    def lanes(self) -> Any:
        """How many clients train side by side, and the memory that takes."""
        return self.plan.lanes

    @property
    def rounds_per_dispatch(self) -> int:
        """The most rounds in one call of the compiled program."""
        return self.plan.rounds_per_dispatch

    def start(self, params: Params | None = None) -> SimulationState:
        """The state before round 0; `params`: other weights than the task's own."""
        params = self.task.init(jax.random.key(self.seed)) if params is None else params

        def initial(cell: Any) -> State:
            method = self.method_of(cell)
            if self.plan.memory_on_host:
                return State(method.init(params), ())
            return initial_state(self.task, method, self.federation, params)

        state = self._over_cells(initial, (0,))(self.grid)
        state = self._placed(jax.tree.map(jnp.copy, state))  # a method may use one array twice; a run gives each away
        memory = self._host_memory(state.server) if self.plan.memory_on_host else state.memory
        return SimulationState(state.server, memory, 0)

    def round(self, state: SimulationState) -> tuple[SimulationState, RoundInfo]:
        """One more round, and what people look at."""
        state, infos = self.run(state, 1)
        return state, jax.tree.map(lambda leaf: leaf[0] if self.grid is None else leaf[:, 0], infos)

    def run(self, state: SimulationState, rounds: int) -> tuple[SimulationState, RoundInfo]:
        """`rounds` more rounds, in dispatches of at most `rounds_per_dispatch`; one entry of the infos per round."""
        dispatches, left = list[RoundInfo](), check_int("rounds", rounds, low=1)
        while left:
            count = min(left, self.rounds_per_dispatch)
            state, infos = self._dispatch(state, count)
            dispatches.append(infos)
            left -= count
        axis = 0 if self.grid is None else 1
        return state, jax.tree.map(lambda *parts: np.concatenate(parts, axis), *dispatches)

    def _default_dispatch(self) -> str:
        """By timing, if the loss has an operation that may be slower inside a loop than alone."""
        platform = self.plan.devices[0].platform
        if self.grid is not None or platform != "cpu":
            return "round"
        task, key = self.task, jax.random.key(0)
        batch = {**device_rows(task.train.columns, task.train.starts[:1]), "mask": jnp.ones(1), "key": key}
        gradient = jax.grad(lambda params, batch: task.loss(params, batch)[0])
        return "timed" if slow_in_loops(gradient, jax.eval_shape(task.init, key), batch, platform=platform) else "round"

    def _dispatch(self, state: SimulationState, rounds: int) -> tuple[SimulationState, RoundInfo]:
        """So many rounds in one call of the compiled program."""
        server, memory, first_round = state
        federation = self._federation_at(first_round)
        buffer, rows, clients = memory, None, np.zeros(0, np.int64)
        if isinstance(memory, HostMemory):
            clients = np.unique(self._clients_from(first_round, rounds))
            buffer, rows = self._placed(to_device(memory, clients, self._buffer_rows))
        numbers = jnp.uint32(self.seed), jnp.int32(first_round), jnp.int32(rounds)
        self._decide_dispatch(federation, rows, first_round, State(server, buffer))
        if self.dispatch == "step":
            (server, buffer), infos = self._run_by_steps(federation, rows, first_round, rounds, State(server, buffer))
        else:
            infos = self._empty_infos(self.grid, federation, rows, State(server, buffer))
            (server, buffer), infos = self._run(self.grid, federation, rows, *numbers, State(server, buffer), infos)
        if isinstance(memory, HostMemory):
            from_device(memory, clients, buffer)
            buffer = memory
        self._prepare(first_round + rounds)  # the device is computing meanwhile
        taken = np.s_[:rounds] if self.grid is None else np.s_[:, :rounds]
        infos = jax.tree.map(lambda leaf: np.asarray(leaf)[taken], infos)
        return SimulationState(server, buffer, first_round + rounds), infos

    def _decide_dispatch(self, federation: Federation, rows: Any, round_index: int, state: State) -> None:
        """One round by single steps, of which some are timed both ways; its result is not used."""
        if self.dispatch == "timed":
            timed = StepDispatch(len(self.plan.devices), timing=True)
            self._round_of_cell(None, federation, rows, jnp.uint32(self.seed), jnp.int32(round_index), state, timed)
            self.step_seconds = timed.seconds
            self.dispatch = "step" if timed.seconds and timed.seconds.alone_is_faster else "round"

    def _run_by_steps(
        self, federation: Federation, rows: Any, first_round: int, rounds: int, state: State
    ) -> tuple[State, RoundInfo]:
        """The same rounds with one dispatch per local step."""
        infos, seed = [], jnp.uint32(self.seed)
        for r in range(rounds):
            number = jnp.int32(first_round + r)
            state, info = self._round_of_cell(None, federation, rows, seed, number, state, self._step_dispatch)
            infos.append(jax.tree.map(np.asarray, info))
        return state, jax.tree.map(lambda *leaves: np.stack(leaves), *infos)

    def _federation_at(self, first_round: int) -> Federation:
        if self._next is None or self._next[0] != (self.seed, first_round):
            self._prepare(first_round)
        return self.federation if self._next is None else self._next[1]

    def _prepare(self, first_round: int) -> None:
        """Fills the window of the rounds to come, when the data stays on the host."""
        if self._window is not None:
            clients = self._clients_from(first_round, self.rounds_per_dispatch)
            columns, starts = self._placed(self._window.filled(clients))
            self._next = (self.seed, first_round), self.federation.with_columns(columns, starts)

    def _clients_from(self, first_round: int, rounds: int) -> np.ndarray:
        """Who takes part in these rounds of a dispatch, one row per round."""
        numbers = jnp.uint32(self.seed), jnp.int32(first_round), jnp.int32(rounds)
        return np.asarray(self._cohorts(*numbers))[:rounds]

    def _cohorts_from(self, seed: Any, first_round: Any, rounds: Any) -> Any:
        method = self._first_method()

        def drawn(r: Any) -> Any:
            found = []
            for number, phase in enumerate(method.all_phases):
                sampling, cohort = phase.sampling, phase.cohort or self.plan.cohort
                if sampling is not None and not sampling.needs_scores:
                    found.append(draw_cohort(sampling, self.federation, cohort, seed, first_round + r, number).clients)
            return jnp.concatenate(found)

        row = jax.eval_shape(drawn, jnp.int32(0))
        cohorts = jnp.zeros((self.rounds_per_dispatch, *row.shape), row.dtype)
        return jax.lax.fori_loop(0, rounds, lambda r, cohorts: cohorts.at[r].set(drawn(r)), cohorts)

    def _host_memory(self, server: Any) -> HostMemory:
        def first_rows(cell: Any, server: Any, clients: Any) -> Any:
            return client_memory(self.task, self.method_of(cell), self.federation, server, clients)

        mapped = jax.jit(self._over_cells(first_rows, (0, 0, None)))
        initial = jax.tree.map(jnp.copy, server)  # the state's own is given to the next round
        first = lambda clients: mapped(self.grid, initial, jnp.asarray(clients))
        return HostMemory(len(self.federation), first, self._client_axis)

    def _placed(self, tree: Any) -> Any:
        """On every device from the start, as the program's results are: else the second dispatch compiles again."""
        return tree if self.mesh is None else jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))

    def _run_cell(
        self,
        cell: Any,
        federation: Federation,
        memory_rows: Any,
        seed: Any,
        first_round: Any,
        rounds: Any,
        state: State,
        infos: RoundInfo,
    ) -> tuple[State, RoundInfo]:
        step = lambda round_index, state: self._one_round(cell, federation, memory_rows, seed, round_index, state)
        return many_rounds(step, first_round, rounds, state, infos)

    def _round_of_cell(
        self,
        cell: Any,
        federation: Federation,
        memory_rows: Any,
        seed: Any,
        round_index: Any,
        state: State,
        step_dispatch: StepDispatch | None = None,
    ) -> tuple[State, RoundInfo]:
        plan = self.plan
        parts = self.method_of(cell), plan.cohort, plan.all_lanes, self.mesh, seed
        setting = Setting(self.task, *parts, availability=self.availability, step_dispatch=step_dispatch)
        return one_round(setting, federation, memory_rows, round_index, state)

    def _empty_infos_of_cell(self, cell: Any, federation: Federation, memory_rows: Any, state: State) -> RoundInfo:
        shapes = jax.eval_shape(self._one_round, cell, federation, memory_rows, jnp.uint32(0), jnp.int32(0), state)[1]
        return jax.tree.map(lambda leaf: jnp.zeros((ROUNDS_PER_DISPATCH, *leaf.shape), leaf.dtype), shapes)

    def _over_cells(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        """`function(cell, …)` over the grid's cells; `axes`: 0 for the arguments that have an entry per cell.

        The grid is an argument of the program, so that another one of as many cells needs no new compilation.
        """
        if self.grid is None:
            return function
        if self.cells > 1:
            return jax.vmap(function, axes)

        def alone(*arguments: Any) -> Any:  # a single cell is not batched, which CPUs like better
            own = lambda argument, axis: argument if axis is None else jax.tree.map(lambda leaf: leaf[0], argument)
            return jax.tree.map(lambda leaf: leaf[None], function(*map(own, arguments, axes)))

        return alone

    def _first_method(self) -> Method:
        return self.method_of(None if self.grid is None else jax.tree.map(lambda values: values[0], self.grid))

    def each_cell(self, tree: Any) -> list[Any]:
        """A state or infos cell by cell; without a grid there is one."""
        if self.grid is None:
            return [tree]
        return [jax.tree.map(operator.itemgetter(cell), tree) for cell in range(self.cells)]

    def on_host(self, state: SimulationState, clients: np.ndarray) -> State:
        """The state as NumPy arrays, of the clients' memory only the rows of these clients."""
        memory = rows_of(state.memory, clients, self._client_axis)
        return jax.tree.map(np.asarray, State(state.server, memory))

    def resumed(
        self, start: SimulationState, cells: Sequence[State], clients: np.ndarray, rounds: int
    ) -> SimulationState:
        """The state after `rounds` rounds, from `start` and one state per cell with the rows of these clients."""
        stacked = cells[0] if self.grid is None else jax.tree.map(lambda *leaves: np.stack(leaves), *cells)
        memory = with_rows(start.memory, clients, stacked.memory, self._client_axis)
        server = self._placed(jax.tree.map(jnp.asarray, stacked.server))
        on_device = not isinstance(memory, HostMemory)
        memory = self._placed(jax.tree.map(jnp.asarray, memory)) if on_device else memory
        return SimulationState(server, memory, rounds)

    @property
    def _client_axis(self) -> int:
        """Of clients in their memory: runs that train together come first."""
        return 0 if self.grid is None else 1

    @property
    def cells(self) -> int:
        """How many runs train together."""
        return 1 if self.grid is None else len(jax.tree.leaves(self.grid)[0])

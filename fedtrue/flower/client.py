"""A fedtrue task as a Flower `ClientApp`: the client's half of a round, by the same functions as in the simulation."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from fedtrue.algorithm.aggregation import WeightedSums, weigh
from fedtrue.algorithm.client_update import client_update
from fedtrue.algorithm.context import Context as PhaseContext
from fedtrue.algorithm.interface import METHOD, OBJECTIVE, UNIFORM, Broadcast
from fedtrue.algorithm.method import Method
from fedtrue.engine.capacity import exchanges
from fedtrue.engine.round import with_phase_steps
from fedtrue.federation import batch, batches_of, federation_of, loss_of
from fedtrue.flower.memory import NodeMemory
from fedtrue.flower.noise import noise_key
from fedtrue.flower.own_clients import client_number, described, failed, trained
from fedtrue.flower.wire import ARRAYS, CONFIG, SHARED, from_record
from fedtrue.lowering import Program
from fedtrue.precision import float64
from fedtrue.spec import plain
from fedtrue.tasks.task import Task


def client_app(
    task: Task | Callable[[Context], Task],
    method: Method,
    *,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
    memory: str | Path | None = None,
    secret_noise: bool = True,
) -> ClientApp:
    """A `ClientApp` whose node trains one client of a task, the one with the number `partition-id` of its node.

    The node's weights are those of the simulation: the same seed, round and client give the same batches.

    Args:
        task: with all clients, of which each node trains its own; or a function of Flower's `Context` that returns the
            task of a node, whose train data may be that of its own client only.
        method: the same as the server's; another one is refused.
        local_steps: one number, or one per client; without it, the task's local epochs.
        rate_multipliers: γ_i, one per client of the task.
        memory: a folder at the node for what its client keeps between rounds. Without it Flower keeps that, until the
            Flower run ends; methods whose clients keep something need the folder to be resumed.
        secret_noise: draw the noise of a method with `privacy` at the clients from the operating system; False: from
            the seed, as the simulation does. The server knows the seed, so nothing is private then.

    Returns:
        The app, to be named in `pyproject.toml` as `clientapp`.

    >>> import fedtrue as ft
    >>> app = ft.flower.client_app(ft.tasks.quadratic(), ft.fedopt(ft.client.adagrad(0.1)))
    """
    app, clients = ClientApp(), dict[int, NodeClient]()

    def own_client(context: Context) -> "NodeClient":
        number = client_number(context)
        if number not in clients:
            own = task if isinstance(task, Task) else task(context)
            folder = None if memory is None else Path(memory)
            clients[number] = NodeClient(own, method, number, local_steps, rate_multipliers, folder, secret_noise)
        return clients[number]

    def reply_to(work: Callable[["NodeClient", Message, Context], Message]) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            try:
                client = own_client(context)
                with float64(client.task.float64):
                    return work(client, message, context)
            except ValueError as error:  # the server's log says it in one line
                return failed(message, error)

        return handle

    app.query()(reply_to(lambda client, message, context: client.describe(message)))
    app.train()(reply_to(lambda client, message, context: client.train(message, context)))
    return app


class NodeClient:
    """One client at its node."""

    def __init__(
        self,
        task: Task,
        method: Method,
        number: int,
        local_steps: int | Sequence[int] | None,
        rate_multipliers: Sequence[float] | None,
        memory_folder: Path | None,
        secret_noise: bool,
    ):
        self.task, self.method, self.number, self._folder = task, method, number, memory_folder
        privacy = method.upload.privacy
        self._secret_noise = secret_noise and privacy is not None and privacy.local
        self.row = 0 if len(task.train) == 1 else number
        if not 0 <= self.row < len(task.train):
            raise ValueError(f"partition-id is {number}, and the task has clients 0 to {len(task.train) - 1}")
        with float64(task.float64):
            self.federation = federation_of(task, method, local_steps, rate_multipliers)
            self.shapes = exchanges(task, method)
        self._programs: dict[tuple[int, int, int], Program] = {}

    def describe(self, message: Message) -> Message:
        """The reply to the server's question."""
        objective, size = self.task.client_weights()[self.row], self.task.client_weights("examples")[self.row]
        weights = {METHOD: float(self.federation.weights[METHOD][self.row]), OBJECTIVE: float(objective)}
        return described(message, self.number, float(size), weights)

    def train(self, message: Message, context: Context) -> Message:
        """One phase: the local steps, the client's part of the weighted sums, and what it keeps."""
        config = message.content.config_records[CONFIG]
        check_same_method(config, self.method)
        number, round_index = int(config["phase"]), int(config["round"])  # type: ignore[arg-type]
        broadcast = received_broadcast(message, self.shapes[number].broadcast)
        kept = NodeMemory(context, self._folder, str(config["run"]), self.number, number)
        before = self._memory(kept, number, round_index, broadcast, bool(config["resumed"]))
        sums, after, steps, finite = self._program(number, config)(
            self.federation,
            broadcast,
            before,
            jnp.int32(self.row),
            jnp.int32(self.number),
            jnp.uint32(config["seed"]),
            noise_key(self._secret_noise, jnp.uint32(config["seed"]), round_index, number),
            jnp.int32(round_index),
            jnp.asarray(config["objective-total"], jnp.result_type(float)),
        )
        if self.shapes[number].memory != ():
            kept.save(after if finite else before, round_index)
        contributions = (
            {name: contribution.value for name, contribution in sums.contributions.items()} if finite else {}
        )
        metrics = {name: (float(total), float(count)) for name, (total, count) in sums.metric_sums.items()}
        weights = {name: float(weight) for name, weight in sums.weights.items()}
        return trained(message, self.number, int(steps), weights, contributions, metrics if finite else {})

    def _memory(self, kept: NodeMemory, number: int, round_index: int, broadcast: Broadcast, resumed: bool) -> Any:
        """What the client has kept; one that never took part begins as the method says."""
        like = self.shapes[number].memory
        if like == ():
            return ()
        memory = kept.load(like, round_index)
        if memory is not None:
            return memory
        if resumed and self._folder is None:
            raise ValueError(
                f"the server has resumed its run, and Flower has not kept what client {self.number} knew before: give "
                "client_app(…, memory=FOLDER), and start a new run"
            )
        work = self.method.all_phases[number].work(loss_of(self.task, self.federation, broadcast.params))
        return work.init_memory(broadcast, jnp.int32(self.number))

    def _program(self, number: int, config: ConfigRecord) -> Program:
        clients, cohort = int(config["clients"]), int(config["cohort"])  # type: ignore[arg-type]
        key = number, clients, cohort
        if key not in self._programs:
            self._programs[key] = Program(self._phase_program(*key))
        return self._programs[key]

    def _phase_program(self, number: int, clients: int, cohort: int) -> Callable[..., Any]:
        """(…) → (the client's part of the sums, what it keeps, its steps, whether all is finite)."""
        phase = self.method.all_phases[number]

        def run(
            federation: Any,
            broadcast: Broadcast,
            memory: Any,
            row: Any,
            index: Any,
            seed: Any,
            key: Any,
            round_index: Any,
            total: Any,
        ) -> tuple[WeightedSums, Any, Any, Any]:
            own = with_phase_steps(phase, federation)
            work = phase.work(loss_of(self.task, own, broadcast.params))
            client = own.client(row, self.method.learning_rate(round_index))._replace(index=index)
            batches = batches_of(own, index, seed, round_index, row)
            context = PhaseContext(round_index, key, clients, cohort)
            output = client_update(work, broadcast, client, memory, lambda k: batch(own, batches, k), context)
            weights = {
                METHOD: own.weights[METHOD][row],
                OBJECTIVE: jnp.asarray(self.task.client_weights(), total.dtype)[row] / total,
                UNIFORM: own.weights[UNIFORM][row],
            }
            return weigh(output, weights), output.memory, client.steps, output.finite

        return run


def received_broadcast(message: Message, like: Broadcast) -> Broadcast:
    """What the server sent, in the shape that the method has."""
    records, expected = message.content.array_records, {ARRAYS: like.params, SHARED: like.shared}
    found = {name: from_record(records.get(name, {}), tree, "the server's message") for name, tree in expected.items()}
    return Broadcast(found[ARRAYS], found[SHARED])


def method_text(method: Method) -> str:
    """The method as text: equal texts are equal methods."""
    return json.dumps(plain(method.spec), sort_keys=True, default=str)


def check_same_method(config: ConfigRecord, method: Method) -> None:
    """Refuses to train by another method than the server's."""
    own, server = method_text(method), str(config["method"])
    if server != own:
        raise ValueError(f"the server's method is {server}, this client's {own}: give both the same")

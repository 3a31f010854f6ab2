"""What a method costs, in multiples of the model: read off its shapes, for a model of one large array."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.interface import Client, Context, Loss, Phase
from fedtrue.algorithm.method import Method
from fedtrue.data.client_data import ClientData
from fedtrue.engine.capacity import lane_bytes, memory_bytes, message_bytes, tree_bytes
from fedtrue.tasks.task import Task

SIDE = 1000  # of the model's one matrix: a single number beside it is 1e-6 of it
DIGITS = 2  # of a multiple


class Costs(NamedTuple):
    """Of one client and round, in multiples of the model; of the messages and gradients, one entry per phase."""

    up: tuple[float, ...]
    down: tuple[float, ...]
    gradients: tuple[int, ...]  # per local step
    kept: float  # by a client between rounds
    held: float  # by a client while it trains: weights, optimizer state, trace and a gradient; no activations
    server: float  # by the server besides the weights
    needs_all_clients: bool  # in every round


def costs_of(method: Method) -> Costs:
    """The costs of a method; nothing is computed."""
    task = _one_matrix()
    model = tree_bytes(jax.eval_shape(task.init, jax.random.key(0)))
    share = lambda size: round(size / model, DIGITS)
    message = message_bytes(task, method)
    server = jax.eval_shape(lambda key: method.init(task.init(key)), jax.random.key(0))
    return Costs(
        up=tuple(map(share, np.add(message.up, message.reports).tolist())),
        down=tuple(map(share, message.down)),
        gradients=tuple(_gradients_per_step(task, method, phase) for phase in method.all_phases),
        kept=share(memory_bytes(task, method)),
        held=share(lane_bytes(task, method)),
        server=share(tree_bytes(server._replace(params=()))),
        needs_all_clients=method.needs_all_clients,
    )


def _one_matrix() -> Task:
    """½ ‖x − example‖²: which loss it is does not change a shape."""
    value = lambda params, batch: 0.5 * jnp.sum((params["matrix"] - batch["example"][0]) ** 2)
    return Task(
        name="one matrix",
        init=lambda key: {"matrix": jnp.zeros((SIDE, SIDE))},
        loss=lambda params, batch: (value(params, batch), {}),
        metrics=lambda params, batch: {},
        train=ClientData.from_clients([{"example": np.zeros(1)}]),
        batch_size=1,
    )


def _gradients_per_step(task: Task, method: Method, phase: Phase) -> int:
    """How often a local step takes the gradient of a batch: counted while one step is traced."""
    gradients = 0

    def counted(params: Any, batch: Any) -> Any:
        nonlocal gradients
        gradients += 1
        return task.loss(params, batch)

    def one_step(key: Any) -> Any:
        work, context = phase.work(Loss(counted, {})), Context(jnp.int32(0), key, 1, 1)
        broadcast, client = phase.broadcast(method.init(task.init(key)), context), Client(jnp.int32(0), 1, 1.0, 1.0)
        state = work.start(broadcast, client, work.init_memory(broadcast, client.index))
        batch = {"example": jnp.zeros(1), "mask": jnp.ones(1), "key": key}
        return work.step(broadcast, state, batch, jnp.ones(()))

    jax.eval_shape(one_step, jax.random.key(0))
    return gradients

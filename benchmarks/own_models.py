"""Users' own models: time per round of fedtrue beside the same model in a bare JAX loop, one dispatch per step.

    python benchmarks/own_models.py                   # the four models on all cores; prints one JSON line per model
    python benchmarks/own_models.py cnn lstm --out benchmarks/results/own-models-cpu.jsonl
    python benchmarks/own_models.py cnn --rules off   # without fedtrue's lowering rules

Models are written in flax or equinox as their users write them; nothing in them knows of fedtrue. Random data; every
client takes the same number of steps of SGD on full batches, in the stored order. The two sides are timed in turns in
one process, and their weights after one round are compared.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

import jax

if os.environ.get("JAX_PLATFORMS", "") in ("", "cpu"):  # one CPU device per core; GPUs are not touched by this
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

import fedtrue as ft
from fedtrue.lowering import program

LEARNING_RATE = 0.05
SECONDS_PER_TURN = 0.5


class CNN(nn.Module):
    """As in flax's own MNIST example, with 62 classes."""

    @nn.compact
    def __call__(self, x):
        for filters in (32, 64):
            x = nn.max_pool(nn.relu(nn.Conv(filters, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(128)(x.reshape(x.shape[0], -1)))
        return nn.Dense(62)(x)


class Block(nn.Module):
    filters: int
    stride: int

    @nn.compact
    def __call__(self, x):
        y = nn.Conv(self.filters, (3, 3), (self.stride, self.stride), use_bias=False)(x)
        y = nn.Conv(self.filters, (3, 3), use_bias=False)(nn.relu(nn.GroupNorm(8)(y)))
        if x.shape != y.shape:
            x = nn.GroupNorm(8)(nn.Conv(self.filters, (1, 1), (self.stride, self.stride), use_bias=False)(x))
        return nn.relu(x + nn.GroupNorm(8)(y))


class ResNet18(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.GroupNorm(8)(nn.Conv(64, (3, 3), use_bias=False)(x)))
        for filters, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
            x = Block(filters, stride)(x)
        return nn.Dense(10)(x.mean((1, 2)))


class LanguageModel(nn.Module):
    """The shapes of the paper's Shakespeare model."""

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(90, 8)(tokens)
        for _ in range(2):
            x = nn.RNN(nn.OptimizedLSTMCell(256))(x)
        return nn.Dense(90)(x)


class MixerBlock(eqx.Module):
    norm_tokens: eqx.nn.LayerNorm
    norm_channels: eqx.nn.LayerNorm
    tokens: eqx.nn.MLP
    channels: eqx.nn.MLP

    def __init__(self, patches, width, *, key):
        first, second = jax.random.split(key)
        self.norm_tokens, self.norm_channels = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.tokens = eqx.nn.MLP(patches, patches, 2 * patches, 1, jax.nn.gelu, key=first)
        self.channels = eqx.nn.MLP(width, width, 4 * width, 1, jax.nn.gelu, key=second)

    def __call__(self, x):
        x = x + jax.vmap(self.tokens)(jax.vmap(self.norm_tokens)(x).T).T
        return x + jax.vmap(self.channels)(jax.vmap(self.norm_channels)(x))


class Mixer(eqx.Module):
    """An MLP-Mixer on 4 × 4 patches of 32 × 32 images; of one image, as equinox models are."""

    embed: eqx.nn.Conv2d
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, key, width=128, depth=4):
        keys = jax.random.split(key, depth + 2)
        self.embed = eqx.nn.Conv2d(3, width, 4, 4, key=keys[0])
        self.blocks = [MixerBlock(64, width, key=k) for k in keys[1:-1]]
        self.head = eqx.nn.Linear(width, 10, key=keys[-1])

    def __call__(self, image):
        x = self.embed(image.transpose(2, 0, 1)).reshape(-1, 64).T
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(0))


class Workload(NamedTuple):
    init: Callable[[Any], Any]
    logits: Callable[[Any, Any], Any]  # (params, one example's x) → logits
    batch: int
    steps: int  # per client
    x: Callable[[np.random.Generator, int], np.ndarray]
    y: Callable[[np.random.Generator, int], np.ndarray]
    clients: int = 10


def flax_model(module, shape, dtype=jnp.float32):
    return lambda key: module.init(key, jnp.zeros((1, *shape), dtype)), lambda params, x: module.apply(params, x[None])[
        0
    ]


def mixer():
    static = eqx.partition(Mixer(jax.random.key(0)), eqx.is_inexact_array)[1]
    return (
        lambda key: eqx.filter(Mixer(key), eqx.is_inexact_array),
        lambda params, x: eqx.combine(params, static)(x),
    )


def images(*shape):
    return lambda rng, n: rng.random((n, *shape), np.float32)


def labels(classes, *shape):
    return lambda rng, n: rng.integers(0, classes, (n, *shape)).astype(np.int32)


WORKLOADS = {
    "cnn": Workload(*flax_model(CNN(), (28, 28, 1)), 20, 7, images(28, 28, 1), labels(62)),
    "resnet": Workload(*flax_model(ResNet18(), (32, 32, 3)), 20, 2, images(32, 32, 3), labels(10)),
    "lstm": Workload(*flax_model(LanguageModel(), (80,), jnp.int32), 4, 7, labels(90, 80), labels(90, 80)),
    "mixer": Workload(*mixer(), 20, 7, images(32, 32, 3), labels(10)),
}


def loss_of(workload):
    def loss(params, example):
        logits = workload.logits(params, example["x"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, example["y"]).mean()

    return loss


def data_of(workload):
    rng, examples = np.random.default_rng(0), workload.batch * workload.steps
    return [{"x": workload.x(rng, examples), "y": workload.y(rng, examples)} for _ in range(workload.clients)]


def bare_loop(workload, clients):
    """Rounds of federated averaging: a compiled step, called for one batch of one client after another."""
    loss = loss_of(workload)

    def step(params, batch):
        gradient = jax.grad(lambda p: jax.vmap(loss, (None, 0))(p, batch).mean())(params)
        return jax.tree.map(lambda x, g: x - LEARNING_RATE * g, params, gradient)

    step = jax.jit(step, donate_argnums=0)
    copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
    add = jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b), donate_argnums=0)
    scale = jax.jit(lambda tree, factor: jax.tree.map(lambda leaf: leaf * factor, tree))
    cut = lambda client, k: {
        name: value[k * workload.batch : (k + 1) * workload.batch] for name, value in client.items()
    }
    batches = jax.device_put([[cut(client, k) for k in range(workload.steps)] for client in clients])

    def one_round(server):
        total = None
        for client in batches:
            params = copy(server)
            for batch in client:
                params = step(params, batch)
            total = params if total is None else add(total, params)
        return scale(total, 1 / len(clients))

    return one_round


def simulation_of(workload, clients):
    task = ft.tasks.from_arrays(clients, workload.init, loss_of(workload), batch_size=workload.batch, shuffle=False)
    return ft.Simulation(task, ft.fedopt(ft.client.sgd(LEARNING_RATE), correction="none"))


def seconds(function):
    began = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - began, result


def difference(left, right):
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(*map(jax.tree.leaves, (left, right))))


def apart_in_full_precision(workload, clients, params):
    """The difference of the weights after one round without TF32 on GPUs or Winograd's form on CPUs."""
    with jax.default_matmul_precision("highest"):
        simulation = simulation_of(workload, clients)
        state, _ = simulation.run(simulation.start(params), 1)
        return difference(state.server.params, bare_loop(workload, clients)(params))


def measure(name, turns):
    workload = WORKLOADS[name]
    clients = data_of(workload)
    bare, simulation = bare_loop(workload, clients), simulation_of(workload, clients)
    params = workload.init(jax.random.key(0))
    start = simulation.start(params)
    bare_first, reference = seconds(lambda: bare(params))
    own_first, (state, _) = seconds(lambda: simulation.run(start, 1))
    apart = difference(state.server.params, reference)
    rounds = max(1, int(SECONDS_PER_TURN / seconds(lambda: bare(params))[0]))
    times = {"bare": [], "fedtrue": []}
    for _ in range(turns):
        times["bare"].append(seconds(lambda: reduce(lambda server, _: bare(server), range(rounds), params))[0] / rounds)
        elapsed, (state, _) = seconds(partial(simulation.run, state, rounds))
        times["fedtrue"].append(elapsed / rounds)
    medians = {side: float(np.median(own)) for side, own in times.items()}
    return {
        "model": name,
        "bare_ms_per_round": round(1e3 * medians["bare"], 2),
        "fedtrue_ms_per_round": round(1e3 * medians["fedtrue"], 2),
        "ratio": round(medians["fedtrue"] / medians["bare"], 3),
        "weights_apart": apart,
        "weights_apart_in_full_precision": apart_in_full_precision(workload, clients, params),
        "first_round_s": {"bare": round(bare_first, 1), "fedtrue": round(own_first, 1)},
        "lanes": str(simulation.lanes),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(WORKLOADS), metavar="MODEL", help=", ".join(WORKLOADS))
    parser.add_argument("--turns", type=int, default=7, help="rounds of each side that are timed")
    parser.add_argument("--rules", choices=("on", "off"), default="on")
    parser.add_argument("--out", type=Path, help="also write the lines to this file")
    arguments = parser.parse_args()
    if arguments.rules == "off":
        program.RULES = {}
    lines = []
    for name in arguments.models:
        lines.append(json.dumps({**measure(name, arguments.turns), "rules": arguments.rules}))
        print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()

"""Milliseconds per round by number of lanes on a CPU, for models of about 10³ to 10⁶ weights: checks the engine's rule.

    python benchmarks/lanes.py            # about 3 minutes; prints a table, writes benchmarks/results/lanes-cpu.jsonl

One hidden layer on 64 random features, 10 classes; 40 clients of 10 to 200 examples, 10 per round, batches of 20,
client SGD. One virtual device per core; the number of lanes is per device. With as many lanes as clients the other
devices are idle. The settings are timed alternately, so that other load on the machine affects all of them equally.
"""

import json
import os
import time
from pathlib import Path

import jax

CORES = len(os.sched_getaffinity(0))
jax.config.update("jax_num_cpu_devices", CORES)

import numpy as np  # noqa: E402

import fedtrue as ft  # noqa: E402
from fedtrue.data.client_data import ClientData  # noqa: E402
from fedtrue.models import count_weights, token_cross_entropy  # noqa: E402
from fedtrue.models.model import dense, init_dense  # noqa: E402
from fedtrue.tasks.task import Task, masked_mean  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "lanes-cpu.jsonl"
FEATURES, CLASSES, CLIENTS, COHORT, BATCH = 64, 10, 40, 10, 20
HIDDEN = {1_000: 13, 10_000: 133, 50_000: 666, 200_000: 2666, 1_000_000: 13_333}  # (64 + 1 + 10)·hidden + 10 weights
BY_RULE = None
TURNS, SECONDS_PER_TURN = 5, 0.2


def perceptron(hidden):
    """The task: a perceptron with one layer of `hidden` ReLUs."""
    rng = np.random.default_rng(0)
    clients = [
        {"x": rng.normal(size=(n, FEATURES)).astype(np.float32), "y": rng.integers(0, CLASSES, n)}
        for n in rng.integers(10, 201, CLIENTS)
    ]

    def init(key):
        below, above = jax.random.split(key)
        return {"below": init_dense(below, FEATURES, hidden), "above": init_dense(above, hidden, CLASSES)}

    def loss(params, batch):
        logits = dense(params["above"], jax.nn.relu(dense(params["below"], batch["x"])))
        mean, sums = masked_mean(token_cross_entropy(logits, batch["y"]), batch["mask"])
        return mean, {"loss": sums}

    return Task(
        name="perceptron",
        init=init,
        loss=loss,
        metrics=lambda params, batch: loss(params, batch)[1],
        train=ClientData.from_clients(clients),
        batch_size=BATCH,
        cohort=COHORT,
    )


def seconds_per_round(simulations):
    """The median over the turns, one entry per simulation."""
    states = [simulation.run(simulation.start(), 1)[0] for simulation in simulations]
    times = [[] for _ in simulations]
    for turn in range(TURNS + 1):
        for n, simulation in enumerate(simulations):
            rounds = 1 if turn == 0 else max(1, int(SECONDS_PER_TURN / times[n][0]))
            began = time.perf_counter()
            states[n], _ = simulation.run(states[n]._replace(round=1), rounds)
            jax.block_until_ready(states[n])
            times[n].append((time.perf_counter() - began) / rounds)
    return [float(np.median(own[1:])) for own in times]


def main():
    choices = [1, 2, COHORT // 2, COHORT, BY_RULE]
    rows = []
    print(f"{'weights':>9}" + "".join(f"{'rule' if n is BY_RULE else n:>9} " for n in choices) + "  ms per round")
    for hidden in HIDDEN.values():
        task = perceptron(hidden)
        method = ft.fedopt(ft.client.sgd(0.01), correction="none")
        simulations = [ft.Simulation(task, method, lanes=lanes) for lanes in choices]
        weights = count_weights(jax.eval_shape(task.init, jax.random.key(0)))
        milliseconds = [round(1e3 * s, 3) for s in seconds_per_round(simulations)]
        print(f"{weights:>9,}" + "".join(f"{ms:>9.2f} " for ms in milliseconds), flush=True)
        for lanes, simulation, ms in zip(choices, simulations, milliseconds):
            rows.append(
                {
                    "weights": weights,
                    "lanes_per_device": simulation.lanes.per_device,
                    "devices": simulation.lanes.devices,
                    "by_rule": lanes is BY_RULE,
                    "ms_per_round": ms,
                    "jax": jax.__version__,
                }
            )
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()

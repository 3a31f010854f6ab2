"""fedtrue: a Task with fedtrue's own model on the workload's arrays, one device per core, the default number of lanes.

`pooled` is a user's own model: a flax module, through `supervised`.

The arrays of all clients are placed on the devices once, before the clock starts; texts stay word ids, the input of
`word_regression`. One dispatch per round, so that every round has its own time.
"""

from dataclasses import replace

import jax

from measure import CORES, Run  # isort: skip

jax.config.update("jax_num_cpu_devices", CORES)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from flax import linen as nn  # noqa: E402
from workloads import CLASSES, EMBEDDING, HIDDEN, TAGS, TOKENS, WORDS, Arrays, Workload, tags_of  # noqa: E402

from fedtrue.algorithm.methods import fedavg  # noqa: E402
from fedtrue.algorithm.sampling import ClientSizes, Draw, Sampling, client_sizes  # noqa: E402
from fedtrue.data.client_data import ClientData  # noqa: E402
from fedtrue.engine.simulation import Simulation  # noqa: E402
from fedtrue.models.cnn import small_cnn  # noqa: E402
from fedtrue.models.linear import bag_of_words, word_regression  # noqa: E402
from fedtrue.models.losses import binary_cross_entropy, token_cross_entropy  # noqa: E402
from fedtrue.models.lstm import language_model  # noqa: E402
from fedtrue.tasks.supervised import supervised  # noqa: E402
from fedtrue.tasks.task import Task, masked_mean  # noqa: E402


def _layers(**names: str) -> dict[str, tuple[str, ...]]:
    """Kernels and biases of layers, by the workload's and the model's names."""
    kernels = {layer: (name, "kernel") for layer, name in names.items()}
    return kernels | {f"{layer}_bias": (name, "bias") for layer, name in names.items()}


LAYOUTS = {  # the workload's name of a weight → its path in fedtrue's model
    "shakespeare": {
        "embedding": ("embedding",),
        **{f"input_{layer}": (f"lstm_{layer}", "kernel") for layer in (0, 1)},
        **{f"recurrent_{layer}": (f"lstm_{layer}", "recurrent_kernel") for layer in (0, 1)},
        **{f"bias_{layer}": (f"lstm_{layer}", "bias") for layer in (0, 1)},
        "output": ("output", "kernel"),
        "output_bias": ("output", "bias"),
    },
    "tags": {"kernel": ("kernel",), "bias": ("bias",)},
    "cnn": _layers(conv_0="conv_0", conv_1="conv_1", dense_0="dense_0", dense_1="dense_1"),
    "pooled": _layers(conv_0="Conv_0", conv_1="Conv_1", dense_0="Dense_0", dense_1="Dense_1"),
}


def to_params(name: str, weights: Arrays) -> dict:
    params: dict = {}
    for weight, (*folders, leaf) in LAYOUTS[name].items():
        place = params
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = jnp.asarray(weights[weight])
    return params


def from_params(name: str, params: dict) -> Arrays:
    weights = {}
    for weight, path in LAYOUTS[name].items():
        leaf = params
        for part in path:
            leaf = leaf[part]
        weights[weight] = np.asarray(leaf)
    return weights


def shakespeare():
    model = language_model(TOKENS, EMBEDDING, HIDDEN, layers=2)

    def loss_of_each(params, batch):
        tokens = batch["tokens"].astype(jnp.int32)
        return token_cross_entropy(model.apply(params, tokens[:, :-1]), tokens[:, 1:]).mean(axis=1)

    return loss_of_each, lambda tokens: {"tokens": tokens}


def tags():
    model = word_regression(WORDS, TAGS)

    def loss_of_each(params, batch):
        labels = (bag_of_words(batch["tags"], TAGS) > 0).astype(jnp.float32)
        return binary_cross_entropy(model.apply(params, batch["words"]), labels).sum(axis=1)

    return loss_of_each, lambda texts: {"words": texts, "tags": tags_of(texts)}


def cnn():
    model = small_cnn(CLASSES)

    def loss_of_each(params, batch):
        return token_cross_entropy(model.apply(params, batch["image"]), batch["label"])

    return loss_of_each, lambda stored: {"image": stored[0], "label": stored[1]}


class FlaxCNN(nn.Module):
    """As its user writes it: nothing in it knows of fedtrue."""

    @nn.compact
    def __call__(self, x):
        for filters in (32, 64):
            x = nn.max_pool(nn.relu(nn.Conv(filters, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(128)(x.reshape(x.shape[0], -1)))
        return nn.Dense(CLASSES)(x)


MODELS = {"shakespeare": shakespeare, "tags": tags, "cnn": cnn}


def task_of(workload: Workload) -> Task:
    """In the workload's order and with its initial weights."""
    init = lambda key: to_params(workload.name, workload.weights())
    return replace(_task(workload), init=init, cohort=workload.size.cohort, shuffle=False)


def _task(workload: Workload) -> Task:
    if workload.name == "pooled":
        clients = [{"x": images, "y": labels} for images, labels in workload.stored]
        return supervised(FlaxCNN(), clients, batch_size=workload.batch_size)
    loss_of_each, columns = MODELS[workload.name]()

    def loss(params, batch):
        mean, sums = masked_mean(loss_of_each(params, batch), batch["mask"])
        return mean, {"loss": sums}

    return Task(
        name=workload.name,
        init=lambda key: {},  # replaced by `task_of`
        loss=loss,
        metrics=lambda params, batch: loss(params, batch)[1],
        train=ClientData.from_clients([columns(stored) for stored in workload.stored]),
        batch_size=workload.batch_size,
    )


def draw_marked(context, sizes, scores) -> Draw:
    """The clients whose size is 1 take part: nothing is drawn at random."""
    clients = jax.lax.top_k(sizes.examples, context.cohort)[1].astype(jnp.int32)
    return Draw(clients, jnp.ones(context.cohort, bool), jnp.ones(context.cohort))


def marked(workload: Workload, round_index: int) -> ClientSizes:
    """Size 1 for the clients of this round's cohort, 0 for all others."""
    marks = np.zeros(workload.size.clients)
    marks[workload.cohort(round_index)] = 1
    return client_sizes(marks)


def main() -> None:
    run = Run(__doc__)
    workload = run.workload
    sampling = Sampling(draw_marked, probability=None, with_replacement=False)
    method = fedavg(workload.learning_rate, sampling=sampling, weighting="examples")
    simulation = Simulation(task_of(workload), method)
    state = simulation.start()
    jax.block_until_ready((state, simulation.federation))
    run.resume()
    for r in range(run.rounds):
        simulation.federation = replace(simulation.federation, sampling_sizes=marked(workload, r))
        state, _ = simulation.run(state, 1)
        jax.block_until_ready(state)
        run.lap()
        if r == 0:
            run.keep(from_params(workload.name, state.server.params))
        run.resume()
    run.report("fedtrue", "jax", "jaxlib")


if __name__ == "__main__":
    main()

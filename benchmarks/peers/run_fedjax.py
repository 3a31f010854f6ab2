"""FedJAX: its federated averaging on its jit backend; the models use haiku, as FedJAX's own models do."""

import jax

if not hasattr(jax, "tree_map"):  # removed from JAX; fedjax 0.0.17 still calls it
    jax.tree_map = jax.tree.map

import fedjax
import haiku as hk
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg
from measure import Run
from workloads import CLASSES, EMBEDDING, HIDDEN, TAGS, TOKENS, Arrays

FORGET_BIAS = np.repeat(np.float32([0, 1, 0, 0]), HIDDEN)  # haiku adds it inside the cell


class UnshuffledClient(fedjax.ClientDataset):
    """FedJAX fills a short last batch with the first examples; here it is padded and masked, as in all runners."""

    def shuffle_repeat_batch(self, hparams=None, **_):
        return self.padded_batch(batch_size=hparams.batch_size)


# --- models ---------------------------------------------------------------------------------------------------------


def language_model(tokens):
    layers = hk.DeepRNN([hk.LSTM(HIDDEN), hk.LSTM(HIDDEN)])
    embedded = hk.Embed(TOKENS, EMBEDDING)(tokens.T)
    states, _ = hk.dynamic_unroll(layers, embedded, layers.initial_state(len(tokens)))
    return jnp.swapaxes(hk.Linear(TOKENS)(states), 0, 1)


def pool(images):
    return hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")(images)


def cnn(images):
    for filters in (32, 64):
        images = jax.nn.relu(hk.Conv2D(filters, 3, padding="VALID")(images))
    return classify(pool(images))


def pooled(images):
    for filters in (32, 64):
        images = pool(jax.nn.relu(hk.Conv2D(filters, 3)(images)))
    return classify(images)


def classify(images):
    features = hk.Flatten()(images)
    hidden = jax.nn.relu(hk.Linear(128)(features))  # haiku numbers layers in the order of creation
    return hk.Linear(CLASSES)(hidden)


NETWORKS = {"shakespeare": language_model, "tags": lambda bags: hk.Linear(TAGS)(bags), "cnn": cnn, "pooled": pooled}


def loss_of_each(batch, logits):
    labels = batch["y"]
    if labels.dtype == jnp.float32:  # tags
        return (jax.nn.softplus(logits) - logits * labels).sum(axis=-1)
    losses = fedjax.metrics.unreduced_cross_entropy_loss(labels, logits)
    return losses.reshape(len(losses), -1).mean(axis=-1)


# --- layouts --------------------------------------------------------------------------------------------------------

CONVOLUTIONAL = {
    "conv2_d": ("conv_0", "conv_0_bias"),
    "conv2_d_1": ("conv_1", "conv_1_bias"),
    "linear": ("dense_0", "dense_0_bias"),
    "linear_1": ("dense_1", "dense_1_bias"),
}
LAYOUTS = {  # haiku's module → the workload's kernel and bias
    "tags": {"linear": ("kernel", "bias")},
    "cnn": CONVOLUTIONAL,
    "pooled": CONVOLUTIONAL,
    "shakespeare": {"linear": ("output", "output_bias")},
}
LSTMS = ("lstm/linear", "lstm_1/linear")


def swap_gates(gates):
    """i, f, g, o ↔ haiku's i, g, f, o."""
    i, second, third, o = np.split(np.asarray(gates), 4, axis=-1)
    return np.concatenate([i, third, second, o], axis=-1)


def to_haiku(name: str, weights: Arrays) -> dict:
    params = {module: {"w": weights[w], "b": weights[b]} for module, (w, b) in LAYOUTS[name].items()}
    if name == "shakespeare":
        params["embed"] = {"embeddings": weights["embedding"]}
        for layer, module in enumerate(LSTMS):
            kernel = np.concatenate([weights[f"input_{layer}"], weights[f"recurrent_{layer}"]])
            params[module] = {"w": swap_gates(kernel), "b": swap_gates(weights[f"bias_{layer}"] - FORGET_BIAS)}
    return params


def from_haiku(name: str, params: dict) -> Arrays:
    weights = {}
    for module, (w, b) in LAYOUTS[name].items():
        weights |= {w: params[module]["w"], b: params[module]["b"]}
    if name == "shakespeare":
        weights["embedding"] = params["embed"]["embeddings"]
        for layer, module in enumerate(LSTMS):
            kernel = swap_gates(params[module]["w"])
            weights[f"input_{layer}"], weights[f"recurrent_{layer}"] = kernel[:-HIDDEN], kernel[-HIDDEN:]
            weights[f"bias_{layer}"] = swap_gates(params[module]["b"]) + FORGET_BIAS
    return {key: np.asarray(value) for key, value in weights.items()}


# --- rounds ---------------------------------------------------------------------------------------------------------

run = Run(__doc__)
workload = run.workload
network = NETWORKS[workload.name]
example = {key: values[:1] for key, values in zip("xy", workload.client(0))}
model = fedjax.create_model_from_haiku(hk.transform(lambda batch: network(batch["x"])), example, loss_of_each)
fedjax.set_for_each_client_backend("jit")
algorithm = fed_avg.federated_averaging(
    fedjax.model_grad(model),
    fedjax.optimizers.sgd(workload.learning_rate),
    fedjax.optimizers.sgd(1.0),
    fedjax.ShuffleRepeatBatchHParams(batch_size=workload.batch_size),
)
state = algorithm.init(jax.tree.map(jnp.asarray, to_haiku(workload.name, workload.weights())))
key = jax.random.PRNGKey(0)  # required, but not used

run.resume()
for r in range(run.rounds):
    clients = [(c, UnshuffledClient(dict(zip("xy", workload.client(c)))), key) for c in workload.cohort(r)]
    state, _ = algorithm.apply(state, clients)
    jax.block_until_ready(state.params)
    run.lap()
    if r == 0:
        run.keep(from_haiku(workload.name, state.params))
    run.resume()
run.report("fedjax", "jax", "jaxlib")

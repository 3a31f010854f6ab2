"""The bare JAX loop: one compiled call per batch, one client after another. Its weights are the reference."""

import jax
import jax.numpy as jnp
import numpy as np
from measure import Run
from models_jax import LOSSES
from workloads import padded_batches

run = Run(__doc__)
workload = run.workload
loss_of_each = LOSSES[workload.name]


def sgd_step(weights, x, y, mask):
    """w − η ∇(mean loss over the unpadded examples of the batch)."""
    gradient = jax.grad(lambda w: (loss_of_each(w, x, y) * mask).sum() / mask.sum())(weights)
    return jax.tree.map(lambda w, g: w - workload.learning_rate * g, weights, gradient)


step = jax.jit(sgd_step, donate_argnums=0)
copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
add_scaled = jax.jit(lambda sums, tree, n: jax.tree.map(lambda s, leaf: s + leaf * n, sums, tree), donate_argnums=0)
divide = jax.jit(lambda tree, n: jax.tree.map(lambda leaf: leaf / n, tree))


def one_round(server, round_index):
    sums = jax.tree.map(jnp.zeros_like, server)
    for client in workload.cohort(round_index):
        x, y = workload.client(client)
        weights = copy(server)
        for batch in padded_batches(x, y, workload.batch_size):
            weights = step(weights, *batch)
        sums = add_scaled(sums, weights, float(len(x)))
    return jax.block_until_ready(divide(sums, float(workload.cohort_examples(round_index))))


weights = jax.tree.map(jnp.asarray, workload.weights())
run.resume()
for r in range(run.rounds):
    weights = one_round(weights, r)
    run.lap()
    if r == 0:
        run.keep(jax.tree.map(np.asarray, weights))
    run.resume()
run.report("jax", "jaxlib")

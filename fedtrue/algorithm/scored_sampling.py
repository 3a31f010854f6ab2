"""Samplings that look at the clients' losses or updates first.

power_of_choice   candidates report their loss at the server's weights; those with the highest train
optimal           the whole cohort trains and reports the norm of its update; long updates are uploaded more often
importance        the whole cohort trains; updates below a threshold are not uploaded but predicted

With the first, fewer clients train; with the other two, fewer clients upload.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm.aggregation import TRAINED, WeightedSums
from fedtrue.algorithm.checks import check_float, check_int
from fedtrue.algorithm.context import Context
from fedtrue.algorithm.interface import (
    METHOD,
    Broadcast,
    Client,
    ClientOutput,
    ClientWork,
    Contribution,
    Loss,
    Phase,
    ServerState,
)
from fedtrue.algorithm.sampling import ClientSizes, Draw, Sampling, Scores, Uploads, equal_probabilities, uniform
from fedtrue.names import look_up
from fedtrue.spec import named

NUMBER = 4  # bytes of a number that clients and server exchange
AOCS_ITERATIONS = 4  # the paper's j_max
UPDATES = ("update", "gradient")  # what corrections call a client's report
MISSING = {
    "process": "an update that is not uploaded is predicted from the server's weights so far",
    "zero": "it counts as 0",
    "ignore": "the mean is over the updates that are uploaded",
}


@named("sampling")
def power_of_choice(candidates: int | None = None, batches: int | None = None) -> Sampling:
    """Of `candidates` drawn by size, the `cohort` with the highest loss train; biased.

    Cho, Wang and Joshi 2020. Candidates are drawn without replacement in proportion to their size, receive the server's
    weights and report their loss at them; the updates of those that train have equal weights. Clients with a high loss
    weigh more than in the objective, so the fixed point is another one. π_pow-d is the default, π_cpow-d has `batches`;
    π_rpow-d, which looks at losses of earlier rounds, is not included.

    Args:
        candidates: d; without it, twice the cohort, or all clients if there are fewer.
        batches: on which a candidate measures its loss, at most one epoch; without it, all its data.

    Returns:
        A sampling, for the option `sampling` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), sampling=ft.sampling.power_of_choice(candidates=20, batches=1))
    >>> len(method.all_phases)  # candidates report their loss, then some of them train
    2
    """
    if candidates is not None:
        check_int("power_of_choice: candidates", candidates, low=1)
    if batches is not None:
        check_int("power_of_choice: batches", batches, low=1)

    def number_of_candidates(clients: int, cohort: int) -> int:
        if candidates is None:
            return min(2 * cohort, clients)
        if candidates < cohort:
            raise ValueError(
                f"power_of_choice: {candidates} candidates are fewer than the cohort of {cohort}: use more candidates, "
                "or a smaller cohort"
            )
        return check_int("power_of_choice: candidates", candidates, low=1, high=clients)

    def draw_candidates(context: Context, sizes: ClientSizes, scores: Scores | None) -> Draw:
        count = number_of_candidates(context.clients, context.cohort)
        chosen = drawn_by_size(context.key, sizes.examples, count)
        return Draw(chosen, sizes.examples[chosen] > 0, jnp.full(count, jnp.nan))

    def draw(context: Context, sizes: ClientSizes, scores: Scores | None) -> Draw:
        assert scores is not None, "the scoring phase is before"
        random = jax.random.bits(context.key, scores.clients.shape, jnp.uint32)  # for equal losses
        highest_first = jnp.lexsort((random, -scores.values, ~scores.active))
        chosen = highest_first[: context.cohort]
        return Draw(scores.clients[chosen], scores.active[chosen], jnp.full(context.cohort, jnp.nan))

    def batches_to_score(steps: Any, epoch: Any) -> Any:
        return epoch if batches is None else jnp.minimum(batches, epoch)

    scoring = Phase(
        loss_work,
        receive=lambda server, sums, context: (server, ()),
        broadcast=lambda server, context: Broadcast(server.params, ()),
        sampling=Sampling(draw_candidates, None, with_replacement=False, places=number_of_candidates),
        steps=batches_to_score,
    )
    return Sampling(draw, None, with_replacement=False, in_proportion_to_size=True, needs_scores=True, scoring=scoring)


def drawn_by_size(key: Any, sizes: Any, count: int) -> Any:
    """`count` different clients, one after another, each in proportion to size among those that are left.

    The clients whose exponential clocks of rate size_i ring first. A clock is −ln(1 − u) / size_i, u of 64 random bits,
    so that the smallest ones, which decide, differ from each other even among a million clients.
    """
    high, low = jax.random.bits(key, (2, sizes.shape[0]), jnp.uint32).astype(sizes.dtype)
    clock = -jnp.log1p(-(high * 2.0**-32 + low * 2.0**-64))
    rings = jnp.where(sizes > 0, clock / jnp.where(sizes > 0, sizes, 1), jnp.inf)
    return jax.lax.top_k(-rings, count)[1].astype(jnp.int32)


def loss_work(loss: Loss) -> ClientWork:
    """A client's mean loss at the server's weights, as its score; it contributes nothing."""

    def start(broadcast: Broadcast, client: Client, memory: Any) -> Any:
        return jnp.zeros(()), jnp.zeros(())

    def step(broadcast: Broadcast, state: Any, batch: Any, learning_rate: Any) -> Any:
        total, examples = state
        count = jnp.sum(batch["mask"])
        value = loss.value(broadcast.params, batch)[0]
        return total + (value if loss.summed else count * value).astype(total.dtype), examples + count

    def finish(broadcast: Broadcast, state: Any, client: Client, context: Context) -> ClientOutput:
        total, examples = state
        score = total / jnp.maximum(examples, 1)
        return ClientOutput({}, loss.no_sums, (), jnp.isfinite(score), score)

    return ClientWork(lambda broadcast, client: (), start, step, finish)


@named("sampling")
def optimal(share: float = 0.2, approximate: bool = False) -> Sampling:
    """`cohort` clients, all alike, train; about `share` of them upload, by norm; unbiased.

    Chen, Horváth and Richtárik 2020. Client i uploads independently of the others with probability p_i, and its update
    counts w_i / p_i: given who trains, the expected mean is that of all uploads. p_i ∝ w_i ‖u_i‖, at most 1, has the
    smallest variance among all probabilities with Σ p_i = m, m = share · cohort. Where clients send several trees (the
    correction `joint`), ‖u_i‖² is the sum of their squared norms, each divided by its mean over the clients.

    The whole cohort computes, and the simulation holds all its updates until the probabilities are known.

    Args:
        share: of the cohort that uploads, in expectation.
        approximate: probabilities by sums over the clients only, so that secure aggregation is possible (AOCS).

    Returns:
        A sampling, for the option `sampling` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), correction="none", sampling=ft.sampling.optimal(share=0.1))
    """
    check_float("optimal: share", share, high=1.0, open_low=True)
    probabilities = approximate_probabilities if approximate else optimal_probabilities

    def choose(context: Context, trained: Draw, norms: Any, weights: Any, state: Any) -> tuple[Draw, Any]:
        length = jnp.where(trained.active, weights * relative_length(norms, trained.active), 0)
        p = probabilities(length, share * jnp.sum(trained.active), trained.active)
        drawn = jax.vmap(lambda client: jax.random.uniform(jax.random.fold_in(context.key, client)))(trained.clients)
        inverse = jnp.where(p > 0, 1 / jnp.where(p > 0, p, 1), 0)
        return trained._replace(active=trained.active & (drawn < p), inverse_probability=inverse), state

    # the probability, or the sum of all norms and per iteration (1, p) up and a factor down
    exchanged = (2 * AOCS_ITERATIONS * NUMBER, (1 + AOCS_ITERATIONS) * NUMBER) if approximate else (0, NUMBER)
    uploads = Uploads(contribution_norms, choose, unbiased=True, exchanged=exchanged)
    return Sampling(uniform().draw, equal_probabilities, with_replacement=False, uploads=uploads)


def contribution_norms(contributions: Mapping[str, Contribution]) -> dict[str, Any]:
    """‖·‖ of everything that is weighed as the method weighs its clients."""
    return {name: tree_norm(each.value) for name, each in contributions.items() if each.weighting == METHOD}


def tree_norm(tree: Any) -> Any:
    """√ of the sum of squares, over all leaves."""
    squares = (jnp.sum(leaf.astype(jnp.result_type(float)) ** 2) for leaf in jax.tree.leaves(tree))
    return jnp.sqrt(sum(squares, start=jnp.zeros(())))


def relative_length(norms: Mapping[str, Any], active: Any) -> Any:
    """√ Σ ‖c_i‖² / mean ‖c‖² over the contributions c; of a single one it is the norm, up to a common factor."""
    squares = [jnp.where(active, values, 0) ** 2 for values in norms.values()]
    totals = [jnp.sum(square) for square in squares]
    return jnp.sqrt(sum(jnp.where(t > 0, s / jnp.where(t > 0, t, 1), 0) for s, t in zip(squares, totals)))


def optimal_probabilities(length: Any, m: Any, active: Any) -> Any:
    """p_i = min(1, length_i / λ) with Σ p_i = m: the k longest have p = 1, the others (m − k) length_i / Σ of them.

    k is the smallest for which none of these is above 1.
    """
    longest_first = jnp.argsort(-length)
    sorted_lengths = length[longest_first]
    left = jnp.cumsum(sorted_lengths[::-1])[::-1]  # Σ of the lengths from the k-th on
    k = jnp.arange(length.shape[0])
    k = jnp.argmax((m - k) * sorted_lengths <= left)
    shared = jnp.maximum(m - k, 0) * length / jnp.where(left[k] > 0, left[k], 1)
    return jnp.where(jnp.argsort(longest_first) < k, 1, jnp.minimum(shared, 1))


def approximate_probabilities(length: Any, m: Any, active: Any) -> Any:
    """p_i ← min(1, m length_i / Σ length), then what exceeds 1 is spread over the others, a few times."""
    total = jnp.sum(length)
    p = jnp.minimum(m * length / jnp.where(total > 0, total, 1), 1)
    for _ in range(AOCS_ITERATIONS):
        below = active & (p < 1)
        of_others = jnp.sum(jnp.where(below, p, 0))
        factor = (m - jnp.sum(active & ~below)) / jnp.where(of_others > 0, of_others, 1)
        p = jnp.where(below, jnp.minimum(jnp.maximum(factor, 1) * p, 1), p)
    return p


@named("sampling")
def importance(deviations: float = 1.0, missing: str = "process") -> Sampling:
    """`cohort` clients, all alike, train; those with a short update do not upload; biased.

    Ribero and Vikalo 2020, after the authors' code. A client uploads if the norm of its update is above the mean minus
    `deviations` standard deviations of last round's norms (in the first round, always). By `missing`, the update of the
    others is predicted: the server's weights are taken for an Ornstein-Uhlenbeck process, x_{t+1} = A x_t + B per
    weight, with A and B fitted to all rounds so far by least squares, and û = x − (A x + B).

    G = (1 − s) G_S + s û    s: the share in weight of the clients that do not upload, G_S: the method's pseudo-gradient

    Args:
        deviations: standard deviations below the mean at which the threshold lies.
        missing: "process", "zero" (û = 0) or "ignore" (G = G_S).

    Returns:
        A sampling, for the option `sampling` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), correction="none", sampling="importance(deviations=0.5)")
    """
    check_float("importance: deviations", deviations, low=-math.inf)
    look_up("importance: missing", MISSING, missing)
    predicts = missing == "process"

    def choose(context: Context, trained: Draw, length: Any, weights: Any, state: Any) -> tuple[Draw, Any]:
        uploads = trained.active & (length > state["threshold"])
        w = jnp.where(trained.active, weights, 0)
        w = w / jnp.where(jnp.sum(w) > 0, jnp.sum(w), 1)
        length = jnp.where(trained.active, length, 0)  # that of a client that diverged is not finite
        mean = jnp.sum(w * length)
        spread = jnp.sqrt(jnp.sum(w * (length - mean) ** 2))
        threshold = jnp.where(trained.active.any(), mean - deviations * spread, state["threshold"])
        chosen = trained._replace(active=uploads, inverse_probability=jnp.ones(uploads.shape))
        return chosen, {**state, "threshold": threshold}

    def init(params: Any) -> dict[str, Any]:
        return {"threshold": jnp.zeros(()), "process": no_process(params) if predicts else ()}

    def estimate(server: ServerState, pseudo_gradient: Any, sums: WeightedSums) -> tuple[Any, Any]:
        if missing == "ignore":
            return pseudo_gradient, server.sampling
        uploaded = sums.weights[METHOD] / jnp.where(sums.weights[TRAINED] > 0, sums.weights[TRAINED], 1)
        mixed = jax.tree.map(lambda g: (uploaded * g).astype(g.dtype), pseudo_gradient)
        if not predicts:
            return mixed, server.sampling
        process = server.sampling["process"]
        add_missing = lambda g, x, y: g + ((1 - uploaded) * (x - y)).astype(g.dtype)
        mixed = jax.tree.map(add_missing, mixed, server.params, predicted(process, server.params))
        after = jax.tree.map(jnp.subtract, server.params, mixed)
        return mixed, {**server.sampling, "process": observed(process, server.params, after)}

    uploads = Uploads(
        update_norm,
        choose,
        unbiased=False,
        init=init,
        estimate=estimate,
        exchanged=(0, NUMBER),  # the threshold
    )
    return Sampling(uniform().draw, None, with_replacement=False, uploads=uploads)


def update_norm(contributions: Mapping[str, Contribution]) -> Any:
    """‖·‖ of what the client reports as its update; of all that it sends, if nothing is called so."""
    updates = [name for name in UPDATES if name in contributions]
    return tree_norm(contributions[updates[0]].value if updates else [each.value for each in contributions.values()])


def no_process(params: Any) -> dict[str, Any]:
    """A line y = A x + B per weight, before the first observation: means, and sums of squares around them."""
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    return {"count": jnp.zeros(()), "x": zeros(), "y": zeros(), "xx": zeros(), "xy": zeros()}


def observed(process: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    """With one more pair (x_t, x_{t+1}); Welford's update, since n Σ x² − (Σ x)² cancels where x hardly moves."""
    count = process["count"] + 1
    moved = lambda mean, new: mean + ((new - mean) / count).astype(mean.dtype)
    mean_x, mean_y = jax.tree.map(moved, process["x"], x), jax.tree.map(moved, process["y"], y)

    def product(total: Any, x: Any, before: Any, y: Any, after: Any) -> Any:
        return total + ((x - before) * (y - after)).astype(total.dtype)

    return {
        "count": count,
        "x": mean_x,
        "y": mean_y,
        "xx": jax.tree.map(product, process["xx"], x, process["x"], x, mean_x),
        "xy": jax.tree.map(product, process["xy"], x, process["x"], y, mean_y),
    }


def predicted(process: dict[str, Any], x: Any) -> Any:
    """ȳ + A (x − x̄), A = Σ (x − x̄)(y − ȳ) / Σ (x − x̄)²; x itself before there are two pairs."""

    def of_weight(x: Any, mean_x: Any, mean_y: Any, xx: Any, xy: Any) -> Any:
        slope = jnp.where(xx > 0, xy / jnp.where(xx > 0, xx, 1), 0)
        return jnp.where(process["count"] > 1, mean_y + slope * (x - mean_x), x)

    return jax.tree.map(of_weight, x, *(process[name] for name in ("x", "y", "xx", "xy")))

"""The interface of methods: phases, cohorts per phase, empty places, contexts, weightings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.aggregation import mean, weighted_sum
from fedtrue.algorithm.interface import (
    METHOD,
    OBJECTIVE,
    UNIFORM,
    Broadcast,
    ClientOutput,
    ClientWork,
    Contribution,
    Phase,
    ServerState,
)
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.sampling import Draw, Sampling, uniform
from fedtrue.engine.capacity import message_bytes
from fedtrue.engine.simulation import Simulation

CLIENTS = 5
VALUES = np.array([3.0, 1.0, 4.0, 1.5, 9.0])
SIZES = (1, 2, 3, 4, 5)


def task():
    """All examples of a client are the same number."""
    clients = [{"x": np.full(size, value, np.float32)} for size, value in zip(SIZES, VALUES)]
    return ft.tasks.from_arrays(
        clients, lambda key: jnp.zeros(()), lambda params, example: params * example["x"], batch_size=2
    )


def reporting(output):
    """Client work that does not train: its state is the sum over its batches, and it sends `output(state, …)`."""

    def work(loss):
        def step(broadcast, state, batch, learning_rate):
            return state + jnp.sum(batch["x"] * batch["mask"])

        finish = lambda broadcast, state, client, context: output(broadcast, state, client, context, loss)
        start = lambda broadcast, client, memory: jnp.zeros(())
        return ClientWork(lambda broadcast, client: (), start, step, finish)

    return work


def sent(loss, score=None, **contributions):
    return ClientOutput(contributions, loss.no_sums, (), jnp.bool_(True), score)


def method_of(*phases, sampling=None):
    return Method(
        init=lambda params: ServerState(params, (), {}),
        phases=phases,
        sampling=sampling or uniform(),
        weighting=None,
        learning_rate=lambda round_index: 0.0,
    )


def one_round(method, round_index=0, **settings):
    simulation = Simulation(task(), method, **settings)
    return simulation.round(simulation.start()._replace(round=round_index))


def keep(**entries):
    """A server that stores what `entries` compute from the sums and does not change the weights."""

    def receive(server, sums, context):
        kept = {name: entry(sums, context) for name, entry in entries.items()}
        return ServerState(server.params, (), {**server.shared, **kept}), jnp.zeros(())

    return receive


def with_entries(method, *names):
    """The same method, with the server's entries initialised to 0: `scan` needs a fixed structure."""
    from dataclasses import replace

    return replace(method, init=lambda params: ServerState(params, (), dict.fromkeys(names, jnp.zeros(()))))


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_each_contribution_is_summed_with_its_own_weighting(lanes):
    def output(broadcast, state, client, context, loss):
        by = lambda weighting: Contribution(state, weighting)
        return sent(loss, method=by(METHOD), share=by(OBJECTIVE), count=by(UNIFORM))

    receive = keep(
        method=lambda sums, context: mean(sums, "method"),
        share=lambda sums, context: weighted_sum(sums, "share"),
        count=lambda sums, context: weighted_sum(sums, "count"),
    )
    method = with_entries(method_of(Phase(reporting(output), receive)), "method", "share", "count")
    state, _ = one_round(method, lanes=lanes)
    own = np.array(SIZES) * VALUES  # one epoch sums a client's examples
    shares = np.array(SIZES) / sum(SIZES)
    assert float(state.server.shared["method"]) == pytest.approx((shares * own).sum(), rel=1e-6)
    assert float(state.server.shared["share"]) == pytest.approx((shares * own).sum(), rel=1e-6)
    assert float(state.server.shared["count"]) == pytest.approx(own.sum(), rel=1e-6)


def test_a_server_gets_the_round_the_size_of_federation_and_cohort_and_its_own_random_key():
    output = lambda broadcast, state, client, context, loss: sent(loss, x=Contribution(state))
    receive = keep(
        round=lambda sums, context: jnp.asarray(context.round, jnp.float32),
        clients=lambda sums, context: jnp.float32(context.clients),
        cohort=lambda sums, context: jnp.float32(context.cohort),
        draw=lambda sums, context: jax.random.uniform(context.key),
    )
    method = with_entries(method_of(Phase(reporting(output), receive)), "round", "clients", "cohort", "draw")
    found = [one_round(method, r, cohort=3)[0].server.shared for r in (4, 7, 7)]
    assert [float(each["round"]) for each in found] == [4, 7, 7]
    assert (float(found[0]["clients"]), float(found[0]["cohort"])) == (5, 3)
    assert float(found[0]["draw"]) != float(found[1]["draw"]) == float(found[2]["draw"])


def test_start_step_and_finish_get_the_broadcast():
    def work(loss):
        def start(broadcast, client, memory):
            return broadcast.shared["seed"]

        step = lambda broadcast, state, batch, learning_rate: state + broadcast.shared["seed"]

        def finish(broadcast, state, client, context):
            return sent(loss, x=Contribution(10 * state + broadcast.shared["seed"], UNIFORM))

        return ClientWork(lambda broadcast, client: (), start, step, finish)

    broadcast = lambda server, context: Broadcast(server.params, {"seed": jnp.asarray(context.round, jnp.float32)})
    method = method_of(Phase(work, keep(x=lambda sums, context: mean(sums, "x")), broadcast))
    state, _ = one_round(with_entries(method, "x"), 3, local_steps=2)
    assert float(state.server.shared["x"]) == 10 * (3 + 2 * 3) + 3


def second_of_three(context, sizes, scores):
    """Of three places only the middle one has a client."""
    places = jnp.arange(context.cohort, dtype=jnp.int32)
    return Draw(places + 1, places == 1, jnp.ones(context.cohort))


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_empty_places_take_no_part(lanes):
    output = lambda broadcast, state, client, context, loss: sent(loss, x=Contribution(state, UNIFORM))
    receive = keep(x=lambda sums, context: weighted_sum(sums, "x"))
    sampling = Sampling(second_of_three, None, with_replacement=False)
    method = with_entries(method_of(Phase(reporting(output), receive), sampling=sampling), "x")
    state, info = one_round(method, cohort=3, lanes=lanes)
    assert float(state.server.shared["x"]) == 3 * 4.0  # client 2: three examples of 4
    assert info.cohort.tolist() == [-1, 2, -1] and info.participants.tolist() == [1]
    assert (int(info.clients), int(info.steps)) == (1, 2)


def best_scores(context, sizes, scores):
    """The clients of the earlier phase with the highest scores."""
    chosen = jax.lax.top_k(scores.values, context.cohort)[1]
    return Draw(scores.clients[chosen], scores.active[chosen], jnp.ones(context.cohort))


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_a_later_phase_can_have_its_own_cohort_drawn_by_the_scores_of_an_earlier_one(lanes):
    """All five clients score their sum; the two best, 12 = 3 · 4 and 45 = 5 · 9, train in the second phase."""
    scoring = lambda broadcast, state, client, context, loss: sent(loss, score=state, x=Contribution(state))
    training = lambda broadcast, state, client, context, loss: sent(loss, x=Contribution(state, UNIFORM))
    phases = (
        Phase(reporting(scoring), keep(first=lambda sums, context: sums.clients.astype(jnp.float32))),
        Phase(
            reporting(training),
            keep(second=lambda sums, context: weighted_sum(sums, "x")),
            sampling=Sampling(best_scores, None, with_replacement=False, needs_scores=True),
            cohort=2,
        ),
    )
    method = with_entries(method_of(*phases), "first", "second")
    state, info = one_round(method, cohort=5, lanes=lanes)
    assert float(state.server.shared["first"]) == 5
    assert float(state.server.shared["second"]) == 12 + 45
    assert info.participants.tolist() == [5, 2] and set(info.cohort[5:].tolist()) == {2, 4}
    assert message_bytes(task(), method).up == (4, 4)
    assert message_bytes(task(), method).reports == (4, 0)


def test_cohorts_that_are_not_known_in_advance_need_their_data_on_the_device():
    output = lambda broadcast, state, client, context, loss: sent(loss, x=Contribution(state))
    phase = Phase(reporting(output), keep())
    later = phase._replace(sampling=Sampling(best_scores, None, with_replacement=False, needs_scores=True), cohort=2)
    with pytest.raises(ValueError, match="cohorts are not known in advance"):
        Simulation(task(), method_of(phase, later), data_on_device=False)


def test_rounds_in_single_dispatches_equal_those_of_one_dispatch_bit_for_bit():
    method = ft.fedopt(ft.client.adam(0.1))
    simulation = Simulation(task(), method, cohort=3, seed=4)
    state = simulation.start()
    for _ in range(6):
        state, info = simulation.round(state)
    together, infos = simulation.run(simulation.start(), 6)
    np.testing.assert_array_equal(state.server.params, together.server.params)
    np.testing.assert_array_equal(info.cohort, infos.cohort[-1])
    result = ft.train(task(), method, rounds=6, cohort=3, seed=4)
    np.testing.assert_array_equal(result.params, together.server.params)


def test_more_rounds_than_one_dispatch_holds_are_run_in_several():
    method = ft.fedopt(ft.client.adam(0.1))
    whole, infos = (simulation := Simulation(task(), method, cohort=3)).run(simulation.start(), 7)
    simulation.plan = simulation.plan._replace(rounds_per_dispatch=3)
    parts, split = simulation.run(simulation.start(), 7)
    np.testing.assert_array_equal(parts.server.params, whole.server.params)
    np.testing.assert_array_equal(split.cohort, infos.cohort)
    with pytest.raises(ValueError, match="rounds must be an integer of at least 1, not 0"):
        simulation.run(simulation.start(), 0)

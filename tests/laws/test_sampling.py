"""Who is drawn: with the stated probabilities, by exact integer arithmetic, also from a million clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedtrue as ft
from fedtrue.algorithm import sampling as sampling_module
from fedtrue.algorithm.context import Context
from fedtrue.algorithm.sampling import client_sizes, poisson_places, random_below
from fedtrue.algorithm.scored_sampling import drawn_by_size
from fedtrue.spec import from_spec
from fedtrue.theory.cohort import cohort_bias

MILLION = 1_000_000
BLIND = ("uniform", "by_size", "poisson", "cyclic")  # they look at nothing but sizes
BY_PROBABILITY = ("uniform", "by_size", "poisson")


def drawn(sampling, sizes, cohort, seed=0):
    table = client_sizes(sizes)
    return jax.jit(lambda key: sampling.draw(Context(0, key, len(sizes), cohort), table, None))(jax.random.key(seed))


def cohorts_of(name, sizes, cohort, count, first_round=0):
    """Of so many rounds, each with its own key."""
    sampling, table = from_spec(name, "sampling"), client_sizes(sizes)
    draw = lambda key, number: sampling.draw(Context(number, key, len(sizes), cohort), table, None)
    keys = jax.random.split(jax.random.key(2), count)
    return jax.tree.map(np.asarray, jax.vmap(draw)(keys, first_round + jnp.arange(count)))


def client_counts(found, clients):
    """How often each client was drawn."""
    return np.bincount(found.clients[found.active], minlength=clients)


def chi_square(counts, expected):
    """z of the chi-square statistic: (χ² − k) / √(2k) for k cells, about normal for many of them."""
    statistic = ((counts - expected) ** 2 / expected).sum()
    return (statistic - len(counts)) / np.sqrt(2 * len(counts))


def test_by_size_draws_a_million_clients_in_proportion_to_their_sizes():
    """As in Stack Overflow: 1 to 128 examples per client, 64.5 million in total. Grouped by size: 128 cells."""
    sizes = np.random.default_rng(0).integers(1, 129, MILLION)
    clients = np.asarray(drawn(from_spec("by_size", "sampling"), sizes, 2_000_000).clients)
    counts = np.bincount(sizes[clients], minlength=129)[1:]
    in_all = np.bincount(sizes, minlength=129)[1:] * np.arange(1, 129)
    assert abs(chi_square(counts, len(clients) * in_all / in_all.sum())) < 4
    blocks = np.bincount(clients // 10_000, minlength=100)  # and grouped by position: float32 sums would drift
    shares = np.add.reduceat(sizes, np.arange(0, MILLION, 10_000)) / sizes.sum()
    assert abs(chi_square(blocks, len(clients) * shares)) < 4


@pytest.mark.parametrize("clients", [100_000, pytest.param(MILLION, marks=pytest.mark.slow)])
def test_by_size_draws_every_client_eventually(clients):
    """1 to 3 examples each, 40 draws per client: one with 1 of 2 · clients examples is missed with chance e⁻²⁰."""
    sizes, seen = np.random.default_rng(1).integers(1, 4, clients), np.zeros(clients, bool)
    sampling, table = from_spec("by_size", "sampling"), client_sizes(sizes)
    draw = jax.jit(lambda key: sampling.draw(Context(0, key, clients, 4 * clients), table, None).clients)
    for key in jax.random.split(jax.random.key(0), 10):
        seen[np.asarray(draw(key))] = True
    assert seen.all()


@pytest.mark.parametrize("bound", [1, 7, 2**16, 64_548_257, 2**32 - 1])
def test_random_integers_are_the_upper_word_of_a_product_of_96_bits(bound):
    key = jax.random.key(5)
    found = np.asarray(random_below(key, 1000, jnp.uint32(bound)))
    high, low = (words.astype(object) for words in np.asarray(jax.random.bits(key, (2, 1000), jnp.uint32)))
    assert found.tolist() == [(bound * (int(upper) * 2**32 + int(lower))) >> 64 for upper, lower in zip(high, low)]


def test_the_smallest_and_the_largest_random_integer_draw_the_first_and_the_last_client():
    table = client_sizes(np.array([2, 0, 3]))
    assert table.tickets.tolist() == [2, 2, 5] and table.tickets.dtype == jnp.uint32
    clients = np.asarray(drawn(from_spec("by_size", "sampling"), np.array([2, 0, 3]), 10_000).clients)
    assert set(clients) == {0, 2}  # a client without examples is never drawn


@pytest.mark.parametrize("sizes", [np.array([0.1, 0.3, 0.6]), np.array([1e9, 3e9, 6e9])], ids=["shares", "huge"])
def test_sizes_above_32_bits_are_drawn_in_proportion(sizes):
    tickets = np.diff(np.asarray(client_sizes(sizes).tickets, np.float64), prepend=0)
    np.testing.assert_allclose(tickets / tickets.sum(), sizes / sizes.sum(), rtol=1e-8)


@pytest.mark.parametrize("name", BY_PROBABILITY)
def test_a_draw_contains_the_expected_count_of_each_of_its_clients(name):
    sizes, cohort, draws = np.array([1, 2, 3, 10]), 2, 40_000
    sampling = from_spec(name, "sampling")
    found = cohorts_of(name, sizes, cohort, draws)
    expected = cohort * sampling.probability(sizes)
    np.testing.assert_allclose(client_counts(found, 4) / draws, expected, atol=0.02)
    np.testing.assert_allclose(1 / found.inverse_probability, expected[found.clients], rtol=1e-5)
    repeated = bool((np.diff(np.sort(found.clients, axis=1), axis=1) == 0).any())
    assert repeated == sampling.with_replacement


@pytest.mark.parametrize("name", BLIND)
def test_cohorts_depend_on_key_and_round_only(name):
    sizes = np.arange(1, 41)
    first, again, later = (cohorts_of(name, sizes, 5, 20, round_) for round_ in (0, 0, 1))
    np.testing.assert_array_equal(first.clients, again.clients)
    np.testing.assert_array_equal(first.active, again.active)
    assert np.array_equal(first.clients, later.clients) == (name != "cyclic")


def test_uniform_and_by_size_draw_the_cohorts_of_the_kept_records():
    """The cohorts that these keys gave before samplings knew the round."""
    sizes = np.arange(1, 101)
    assert drawn(ft.sampling.uniform(), sizes, 8, 7).clients.tolist() == [1, 19, 61, 76, 30, 35, 71, 20]
    assert drawn(ft.sampling.by_size(), sizes, 8, 7).clients.tolist() == [82, 98, 54, 66, 85, 79, 66, 63]


def test_uniform_draws_every_client_equally_often():
    """Of N clients m are in a cohort, so χ² has N − 1 degrees of freedom once scaled by (N − 1)/(N − m)."""
    clients, cohort, draws = 200, 20, 5_000
    counts = client_counts(cohorts_of("uniform", np.ones(clients), cohort, draws), clients)
    expected = draws * cohort / clients
    statistic = ((counts - expected) ** 2 / expected).sum() * (clients - 1) / (clients - cohort)
    assert 1e-4 < stats.chi2.sf(statistic, clients - 1) < 1 - 1e-4


# --- poisson ----------------------------------------------------------------------------------------------------------


def test_poisson_draws_every_client_independently_with_probability_q():
    clients, cohort, draws = 200, 20, 5_000
    found = cohorts_of("poisson", np.ones(clients), cohort, draws)
    q = cohort / clients
    counts = client_counts(found, clients)
    # counts are independent, with variance n q (1 − q)
    statistic = ((counts - draws * q) ** 2 / (draws * q * (1 - q))).sum()
    assert 1e-4 < stats.chi2.sf(statistic, clients) < 1 - 1e-4
    sizes = np.bincount(found.active.sum(axis=1), minlength=60)
    middle = slice(12, 29)  # each expected at least 60 times
    chances = stats.binom.pmf(np.arange(60), clients, q)[middle]
    expected = draws * np.append(chances, 1 - chances.sum())
    statistic = ((np.append(sizes[middle], draws - sizes[middle].sum()) - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, len(expected) - 1) > 1e-4
    taken = np.zeros((draws, clients), bool)
    taken[np.nonzero(found.active)[0], found.clients[found.active]] = True
    together = np.corrcoef(taken[:, :20].T)[np.triu_indices(20, 1)]
    assert np.abs(together).max() < 5 / np.sqrt(draws)  # five standard errors
    assert found.left_out.sum() == 0


@pytest.mark.parametrize(
    ("clients", "cohort"), [(10, 1), (100, 10), (342_477, 50), (1_000, 900), (5, 5), (10**6, 10**4)]
)
def test_more_clients_than_places_are_drawn_with_probability_1e_minus_9_at_most(clients, cohort):
    places = poisson_places(clients, cohort)
    assert stats.binom.sf(places, clients, cohort / clients) <= 1e-9
    enough = int(stats.binom.isf(1e-9, clients, cohort / clients))
    assert enough <= places <= min(clients, enough + 10 + enough // 50)  # Chernoff's bound is not far off


def test_clients_for_whom_there_is_no_place_are_left_out_and_counted(monkeypatch):
    monkeypatch.setattr(sampling_module, "poisson_places", lambda clients, cohort: cohort)
    found = cohorts_of("poisson", np.ones(50), 10, 400)
    full = found.left_out > 0
    assert 0.3 < full.mean() < 0.6  # P(Binomial(50, 0.2) > 10) = 0.416
    assert found.active[full].all() and not found.active[~full].all(axis=1).all()
    chances = np.bincount(found.clients[full].ravel(), minlength=50) / (10 * full.sum())
    assert chances.max() < 3 / 50  # nobody is preferred


def test_poisson_with_a_cohort_of_all_clients_draws_all_of_them():
    found = cohorts_of("poisson", np.ones(7), 7, 50)
    assert found.active.all() and (np.sort(found.clients, axis=1) == np.arange(7)).all()


# --- cyclic -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clients", "groups"), [(12, 3), (14, 4)])
def test_cyclic_draws_from_one_group_at_a_time_and_from_all_clients_over_a_cycle(clients, groups):
    cycles, cohort = 3_000, 2
    found = cohorts_of(f"cyclic(groups={groups})", np.ones(clients), cohort, groups * cycles)
    members = [np.unique(found.clients[turn::groups]) for turn in range(groups)]
    assert sorted(np.concatenate(members)) == list(range(clients))  # disjoint, together everybody
    assert {len(group) for group in members} <= {clients // groups, -(-clients // groups)}
    counts = client_counts(found, clients)
    for group in members:  # as `uniform` from the group
        expected = cycles * cohort / len(group)
        scale = (len(group) - 1) / (len(group) - cohort)
        statistic = ((counts[group] - expected) ** 2 / expected).sum() * scale
        assert stats.chi2.sf(statistic, len(group) - 1) > 1e-4
    share = counts / len(found.clients)  # per round
    np.testing.assert_allclose(1 / found.inverse_probability[0, 0], share[found.clients[0, 0]], rtol=0.1)


def test_cyclic_groups_by_index_are_neighbours_and_random_ones_depend_on_their_own_seed_only():
    turn = lambda text, number: set(cohorts_of(text, np.ones(9), 3, 1, number).clients.ravel())
    in_order = "cyclic(groups=3, shuffle=false)"
    assert [turn(in_order, r) for r in range(4)] == [{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {0, 1, 2}]
    slow = "cyclic(groups=3, shuffle=false, rounds_per_group=2)"
    assert [turn(slow, r) for r in range(4)] == [{0, 1, 2}, {0, 1, 2}, {3, 4, 5}, {3, 4, 5}]
    assert turn("cyclic(groups=3, seed=1)", 0) != turn("cyclic(groups=3, seed=2)", 0)
    runs = [ft.train(QUADRATIC, fedavg("cyclic"), rounds=8, cohort=2, local_steps=1, seed=seed) for seed in (0, 1)]
    assert len(np.unique([run.history["cohort"][::2] for run in runs])) == 3  # the same half of six clients


def test_a_group_that_is_smaller_than_the_cohort_leaves_a_place_empty():
    found = cohorts_of("cyclic(groups=2, shuffle=false)", np.ones(5), 3, 2)
    assert found.active.sum(axis=1).tolist() == [2, 3]  # groups of clients 0 and 1; 2, 3 and 4
    assert set(found.clients[0][found.active[0]]) == {0, 1}


# --- without replacement, in proportion to size -----------------------------------------------------------------------


def test_candidates_are_drawn_one_after_another_in_proportion_to_size_among_those_left():
    """P(first i, then j) = p_i p_j / (1 − p_i) for sizes 1, 2, 3."""
    draws, p = 60_000, np.array([1, 2, 3]) / 6
    keys = jax.random.split(jax.random.key(0), draws)
    pairs = np.asarray(jax.vmap(lambda key: drawn_by_size(key, jnp.asarray([1.0, 2.0, 3.0]), 2))(keys))
    counts = np.bincount(3 * pairs[:, 0] + pairs[:, 1], minlength=9)
    expected = draws * np.outer(p / (1 - p), p)
    np.fill_diagonal(expected, 0)
    cells = expected.ravel() > 0
    assert counts[~cells].sum() == 0
    assert stats.chisquare(counts[cells], expected.ravel()[cells]).pvalue > 1e-4


def test_candidates_from_a_million_clients_are_in_proportion_to_size():
    sizes = np.random.default_rng(0).integers(0, 129, MILLION)
    chosen = np.asarray(jax.jit(lambda key: drawn_by_size(key, jnp.asarray(sizes, float), 20_000))(jax.random.key(0)))
    assert len(set(chosen.tolist())) == 20_000 and sizes[chosen].min() > 0
    # a hundredth of the mass is taken, so that inclusion is nearly in proportion to size
    counts = np.bincount(sizes[chosen] // 8, minlength=17)
    mass = np.bincount(sizes // 8, weights=sizes, minlength=17)
    np.testing.assert_allclose(counts, 20_000 * mass / mass.sum(), rtol=0.1, atol=40)


# --- the expected mean ------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(3)
QUADRATIC = ft.tasks.quadratic(1 + RNG.random((6, 2)), RNG.normal(size=(6, 2)), weights=[1.0, 2.0, 4.0, 1.0, 3.0, 9.0])
HERE = np.array([1.0, -2.0])


def fedavg(sampling):
    return ft.fedopt(ft.client.sgd(0.1), correction="none", sampling=sampling)


def test_the_mean_of_poisson_cohorts_over_the_expected_weight_is_unbiased():
    found = cohort_bias(QUADRATIC, fedavg("poisson"), 2, 3, at=HERE)
    np.testing.assert_allclose(found.mean_over_cohorts, found.full_participation, rtol=1e-12)
    assert (found.standard_error == 0).all()  # all 2⁶ cohorts
    np.testing.assert_allclose(found.shift, 0, atol=1e-9)


def test_the_mean_of_poisson_cohorts_over_their_own_weight_is_biased():
    found = cohort_bias(QUADRATIC, fedavg("poisson(fixed_denominator=false)"), 2, 3, at=HERE)
    assert np.linalg.norm(found.mean_over_cohorts - found.full_participation) > 0.02


def test_sampled_poisson_cohorts_agree_with_all_of_them(monkeypatch):
    from fedtrue.theory import cohort

    joint = ft.fedopt(ft.client.adagrad(0.1), sampling="poisson")
    exact = cohort_bias(QUADRATIC, joint, 2, 3, at=HERE)
    monkeypatch.setattr(cohort, "MAX_ENUMERATED_COHORTS", 0)
    sampled = cohort_bias(QUADRATIC, joint, 2, 3, at=HERE)
    difference = np.abs(sampled.mean_over_cohorts - exact.mean_over_cohorts)
    assert (difference < 4 * sampled.standard_error).all() and (sampled.standard_error > 0).all()


@pytest.mark.parametrize(
    ("sampling", "cohort", "message"),
    [
        ("cyclic(groups=3)", 3, r"each of the 3 groups has at most 2 of the 6 clients, fewer than the cohort of 3"),
        ("cyclic(groups=7)", 1, r"cyclic: groups must be an integer of at least 1 and at most 6, not 7"),
        ("power_of_choice(candidates=2)", 3, r"2 candidates are fewer than the cohort of 3: use more"),
        ("power_of_choice(candidates=9)", 3, r"candidates must be an integer of at least 1 and at most 6, not 9"),
    ],
)
def test_numbers_that_do_not_fit_the_federation_are_refused_with_the_cure(sampling, cohort, message):
    with pytest.raises(ValueError, match=message):
        ft.Simulation(QUADRATIC, fedavg(sampling), cohort=cohort)


@pytest.mark.parametrize("name", ["cyclic", "power_of_choice", "importance"])
def test_theory_refuses_samplings_without_a_probability_per_client_by_name(name):
    with pytest.raises(ValueError, match=f"sampling '{name}' has no fixed probability per client, which the theory"):
        ft.theory.round_operator(QUADRATIC, fedavg(name))


def test_theory_of_poisson_and_optimal_is_that_of_full_participation():
    expected, *others = (
        ft.theory.round_operator(QUADRATIC, fedavg(name), 3)(HERE) for name in ("uniform", "poisson", "optimal")
    )
    for other in others:
        np.testing.assert_array_equal(other, expected)
    with pytest.raises(ValueError, match=r"'optimal' who uploads depends on the updates"):
        cohort_bias(QUADRATIC, fedavg("optimal"), 2)


def test_averaged_optimizer_states_count_the_steps_of_a_client_whatever_the_sampling():
    """`sync` with Adam: its count is τ per round in which somebody took part; an estimate of a sum would scale it."""
    equal = ft.tasks.quadratic(np.ones((6, 1)), np.arange(6.0)[:, None])
    method = ft.fedopt(ft.client.adam(0.1), client_state="sync", sampling="poisson", weighting="uniform")
    simulation = ft.Simulation(equal, method, cohort=3, local_steps=2)
    state, trained = simulation.start(), 0
    for _ in range(10):
        state, info = simulation.round(state)
        trained += int(info.clients > 0)
        assert float(state.server.shared["optimizer"]["count"]) == pytest.approx(2 * trained)
    assert trained > 5

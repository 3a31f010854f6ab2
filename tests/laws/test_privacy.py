"""Clipping bounds one client's influence, the noise is what it is said to be, and the account is dp-accounting's."""

import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.aggregation import WeightedSums
from fedtrue.algorithm.context import Context
from fedtrue.algorithm.interface import SCALE, Contribution
from fedtrue.algorithm.privacy import clipped, privacy_spent, private_receive, with_noise
from fedtrue.algorithm.sampling import MAX_OVERFLOW
from fedtrue.precision import float64

MINIMA = np.arange(12.0)[:, None] * [1.0, -0.5]


def private(privacy, correction="none", client="sgd", rate=0.05, **options):
    common = {"sampling": "poisson", "weighting": "uniform"}
    return ft.fedopt(getattr(ft.client, client)(rate), correction=correction, privacy=privacy, **{**common, **options})


def task():
    return ft.tasks.quadratic(hessians=np.ones((12, 2)), minima=MINIMA, start=[0.0, 0.0])


def norm(contributions, scales):
    parts = [np.ravel(each.value) / scales.get(name, 1.0) for name, each in contributions.items()]
    return np.linalg.norm(np.concatenate(parts))


def test_all_that_a_client_sends_is_one_vector_of_at_most_the_clipped_norm():
    scales = {"inverse_trace": 10.0}
    sent = {
        "update": Contribution(jnp.array([3.0, 4.0])),
        "inverse_trace": Contribution(jnp.full(2, 100.0), role=SCALE),
    }
    short = clipped(sent, 2.0, scales)
    assert norm(sent, scales) == pytest.approx(15.0)  # √(3² + 4² + 10² + 10²)
    assert norm(short, scales) == pytest.approx(2.0)
    ratio = short["update"].value / short["inverse_trace"].value
    np.testing.assert_allclose(ratio, [0.03, 0.04], rtol=1e-6)  # one factor for all: as if the client weighed less
    for name, each in clipped(sent, 15.1, scales).items():
        assert (each.value == sent[name].value).all()


def test_one_client_changes_the_sum_by_at_most_the_clipped_norm():
    """All clients, server rate 1: x moves by Σ clipped / 12. One client with a minimum far away, then without it."""
    method = private("gaussian(clip=0.5)", sampling="uniform")
    moved = []
    for outlier in (0.0, 1e6):
        minima = np.vstack([MINIMA[:-1], [outlier, 0.0]])
        federation = ft.tasks.quadratic(hessians=np.ones((12, 2)), minima=minima, start=[0.0, 0.0])
        moved.append(12 * ft.train(federation, method, rounds=1, local_steps=1).params)
    np.testing.assert_allclose(np.linalg.norm(moved[1] - moved[0]), 0.5, rtol=1e-9)  # from an update of 0 to one of C


def test_the_noise_on_the_sum_has_the_standard_deviation_z_c_s():
    part = ft.privacy.gaussian(clip=0.5, noise=3.0, scales={"square": 4.0})
    sums = {"gradient": Contribution(jnp.zeros(20_000)), "square": Contribution(jnp.zeros(20_000))}
    noisy = with_noise(part, jax.random.key(0), sums)
    error = 4.5 / np.sqrt(2 * 20_000)  # 4.5 relative standard errors of a standard deviation
    assert np.std(noisy["gradient"].value) == pytest.approx(1.5, rel=error)  # z C = 3 · 0.5
    assert np.std(noisy["square"].value) == pytest.approx(6.0, rel=error)  # z C s = 3 · 0.5 · 4
    assert abs(np.corrcoef(noisy["gradient"].value, noisy["square"].value)[0, 1]) < 4.5 / np.sqrt(20_000)


@pytest.mark.parametrize("place, deviation", [("server", 2.0 / 6), ("client", 2.0 * np.sqrt(6) / 6)])
def test_the_server_moves_by_noise_alone_where_updates_are_0(place, deviation):
    """Six clients that start at their common minimum: z C / 6 on the mean, or √6 z C / 6 if each adds noise."""
    dimension = 400
    zeros = np.zeros((6, dimension))
    federation = ft.tasks.quadratic(hessians=np.ones((6, dimension)), minima=zeros, start=zeros[0])
    method = private(ft.privacy.gaussian(clip=1.0, noise=2.0, place=place))
    x = ft.train(federation, method, rounds=1, cohort=6, local_steps=1).params
    assert np.std(x) == pytest.approx(deviation, rel=4.5 / np.sqrt(2 * dimension))


def test_an_empty_cohort_gets_noise_too():
    """With q = 1/12 some rounds draw nobody. An observer must not see which: the server moves in all of them."""
    result = ft.train(task(), private("gaussian(clip=1, noise=1)"), rounds=30, cohort=1, local_steps=1)
    assert (result.history["clients"] == 0).any()
    assert (result.history["pseudo_gradient_norm"] > 0).all()


def test_no_noise_and_no_clipping_is_the_method_without_privacy_bit_for_bit():
    run = lambda method: ft.train(task(), method, rounds=5, cohort=4, local_steps=2)
    plain, off = run(private(None)), run(private(ft.privacy.gaussian(clip=np.inf, noise=0.0)))
    assert (plain.params == off.params).all() and "epsilon" not in off.history


@pytest.mark.parametrize("place, z, q", [("server", 1.1, 4 / 12), ("client", 1.1 / 2, 1.0)])
def test_the_recorded_epsilon_is_that_of_dp_accounting_and_grows(place, z, q):
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting import rdp

    def theirs(rounds):
        event = accounting.GaussianDpEvent(z)
        accountant = rdp.RdpAccountant()
        accountant.compose(event if q == 1 else accounting.PoissonSampledDpEvent(q, event), rounds)
        return accountant.get_epsilon(1e-4)

    method = private(ft.privacy.gaussian(clip=1.0, noise=1.1, delta=1e-4, place=place))
    result = ft.train(task(), method, rounds=4, cohort=4, local_steps=1)
    assert result.history["epsilon"].tolist() == pytest.approx([theirs(rounds) for rounds in (1, 2, 3, 4)], rel=1e-12)
    assert (np.diff(result.history["epsilon"]) > 0).all()
    assert result.summary["epsilon"] == result.history["epsilon"][-1]


def test_clients_without_a_place_are_part_of_delta():
    pytest.importorskip("dp_accounting")
    part, sampling = ft.privacy.gaussian(clip=1.0, noise=1.0, delta=1e-5), ft.sampling.poisson()
    spent = privacy_spent(part, sampling, 1000, 50)
    assert spent(100) == ft.privacy.epsilon(1.0, 100, 0.05, delta=1e-5 - 100 * MAX_OVERFLOW)
    assert spent(20_000) == np.inf  # 20,000 · 10⁻⁹ > δ: nothing can be said


def test_a_denominator_below_its_noise_is_taken_to_be_its_noise():
    part = ft.privacy.gaussian(clip=1.0, noise=2.0)
    seen = private_receive(lambda server, sums, context: (sums, None), part)
    sums = WeightedSums(
        {"inverse_trace": Contribution(jnp.zeros(100), role=SCALE)}, {"method": jnp.asarray(5.0)}, {}, 5, 0
    )
    received = seen(None, sums, Context(0, jax.random.key(0), 10, 5))[0].contributions["inverse_trace"].value
    assert received.min() == 2.0 and received.max() > 2.0  # z C, as every client weighs 1


@pytest.mark.parametrize("correction", ["joint", "moments"])
def test_corrections_with_denominators_train_under_noise(correction):
    privacy = ft.privacy.gaussian(clip=20.0, noise=0.05)
    method = private(privacy, correction, client="adagrad", rate=0.1)
    result = ft.train(task(), method, rounds=60, cohort=12, local_steps=2)
    assert np.isfinite(result.params).all() and result.history["loss"][-1] < 0.6 * result.history["loss"][0]


class Masked:
    """A method whose clients add masks that cancel in the sum, as secure aggregation does."""

    def __init__(self, method, clients):
        masks = np.random.default_rng(0).integers(-(2**20), 2**20, (clients, 2))  # whole numbers: they cancel exactly
        self.masks = jnp.asarray(masks - np.roll(masks, 1, axis=0), float)
        self.method = method

    def phase(self, phase):
        inner = self.method.upload.phase(phase)

        def work(loss):
            of_client = inner.work(loss)

            def finish(broadcast, state, client, context):
                output = of_client.finish(broadcast, state, client, context)
                masked = {
                    name: Contribution(each.value + self.masks[client.index].astype(float), each.weighting, each.role)
                    for name, each in output.contributions.items()
                }
                return output._replace(contributions=masked)

            return of_client._replace(finish=finish)

        return inner._replace(work=work)

    names = ()
    compression = aggregator = privacy = None


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "top_k(share=0.5)"},
        {"privacy": "gaussian(clip=5, noise=0.5)"},
        {"compression": "qsgd(levels=2)", "privacy": "gaussian(clip=5, noise=0.5)"},
    ],
)
def test_the_server_needs_sums_only(options):
    """Masks of 10⁶ that cancel in the sum change nothing but rounding; a median of them would be far away."""
    common = {"privacy": None} | options
    method = private(**common, correction="joint", client="adagrad", sampling="poisson")
    masked = replace(method, upload=Masked(method, 12))
    run = lambda method: ft.Simulation(task(), method, seed=0, cohort=12, local_steps=2)
    with float64():
        plain, hidden = (sim.run(sim.start(), 3)[0].params for sim in map(run, (method, masked)))
    np.testing.assert_allclose(hidden, plain, atol=1e-6)


def test_what_the_account_does_not_hold_for_is_refused():
    noisy = "gaussian(clip=1, noise=1)"
    with pytest.raises(ValueError, match="use sampling='poisson'"):
        private(noisy, sampling="uniform")
    with pytest.raises(ValueError, match="use weighting='uniform'"):
        private(noisy, weighting="examples")
    with pytest.raises(ValueError, match="give clip too"):
        private("gaussian(noise=1)")
    with pytest.raises(ValueError, match="use a method with one phase"):
        ft.methods.mime(ft.client.sgd(0.1), sampling="poisson", weighting="uniform", privacy=noisy)
    with pytest.raises(ValueError, match="without control variates"):
        scaffold = ft.methods.scaffold(ft.client.sgd(0.1), sampling="poisson", weighting="uniform", privacy=noisy)
        ft.train(task(), scaffold, rounds=1)
    with pytest.raises(ValueError, match="use place='server'"):
        private("gaussian(clip=1, noise=1, place=client)", compression="sign")
    with pytest.raises(ValueError, match="privacy would clip 'optimizer_state', a state that clients"):
        ft.train(task(), private("gaussian(clip=1)", client="adam", client_state="sync"), rounds=1)
    with pytest.raises(ValueError, match="clients send no 'inverse_trace': scales are for update"):
        ft.train(task(), private(ft.privacy.gaussian(clip=1.0, scales={"inverse_trace": 2.0})), rounds=1)


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fedpd", "fedsplit"])
def test_clipping_is_refused_where_the_server_follows_what_clients_keep(name):
    """With it SCAFFOLD ends 4.2 from the minimiser at C = 1, where updates vanish: c and Σ p_i c_i stay apart."""
    options = {"client": ft.client.sgd(0.01), "privacy": "gaussian(clip=1)"}
    with pytest.raises(ValueError, match=f"the server of {name} follows what its clients keep"):
        ft.train(task(), ft.methods.METHODS[name](**options), rounds=1)


@pytest.mark.parametrize("name", ["adaalter", "fedlada", "fedadamw", "sync_momentum", "fednova"])
def test_clipping_is_refused_where_clients_send_states(name):
    """Clipped with the update, they would be scaled by its length: AdaAlter's B² fell from 230 to 3.5 at C = 10."""
    rate = {"client": ft.client.sgd(0.01)} if name == "fednova" else {"client_rate": 0.01}
    with pytest.raises(ValueError, match="a state that clients of"):
        ft.train(task(), ft.methods.METHODS[name](**rate, privacy="gaussian(clip=1)"), rounds=1)


def test_every_phase_of_a_round_is_a_release_of_local_noise():
    noisy = "gaussian(clip=1, noise=4, place=client)"
    one = ft.train(task(), private(noisy, sampling="uniform"), rounds=3).history["epsilon"][-1]
    two = ft.train(task(), ft.methods.mime(ft.client.sgd(0.01), privacy=noisy), rounds=3).history["epsilon"][-1]
    assert (one, two) == (pytest.approx(ft.privacy.epsilon(2.0, 3)), pytest.approx(ft.privacy.epsilon(2.0, 6)))


def test_losses_that_clients_report_without_noise_are_refused():
    with pytest.raises(ValueError, match="report their losses without noise"):
        private("gaussian(clip=1, noise=1, place=client)", sampling="power_of_choice")


def test_a_delta_that_is_no_probability_is_refused():
    with pytest.raises(ValueError, match="delta must be a finite number above 0 and below 1"):
        ft.privacy.epsilon(1.0, 1, delta=2.0)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ValueError, match=r"pip install 'fedtrue\[privacy\]'"):
        ft.privacy.epsilon(1.0, 1)

"""What happens to updates on their way up, on Flower: privacy as in the simulation, and what is refused."""

import numpy as np
import pytest

import fedtrue as ft
from tests.flower.federations import grid_of, noisy_task, weights


def private(place, **options):
    privacy = ft.privacy.gaussian(clip=0.5, noise=1.0, place=place)
    return ft.fedopt(
        ft.client.adagrad(0.1),
        correction="joint",
        sampling="poisson" if place == "server" else "uniform",
        weighting="uniform",
        privacy=privacy,
        **options,
    )


@pytest.mark.parametrize("place", ["server", "client"])
def test_a_private_run_has_the_weights_and_the_account_of_the_simulation(place):
    """With q = 1/3 about a third of the cohorts, (2/3)³ = 0.30, is empty: the server adds its noise nevertheless."""
    task, method = noisy_task(), private(place)
    strategy = ft.flower.Strategy(method, task, cohort=1, seed=5, secret_noise=False)
    strategy.start(grid_of(task, method, secret_noise=False), num_rounds=8)
    simulated = ft.train(task, method, rounds=8, cohort=1, seed=5)
    np.testing.assert_allclose(weights(strategy.result.params), weights(simulated.params), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(strategy.result.history["clients"], simulated.history["clients"])
    assert place == "client" or (strategy.result.history["clients"] == 0).any()
    np.testing.assert_allclose(strategy.result.history["epsilon"], simulated.history["epsilon"])


@pytest.mark.parametrize("place", ["server", "client"])
def test_by_default_noise_does_not_come_from_the_seed_which_all_know(place):
    """Two runs with one seed differ by their noise: they start from 0, and the noise on a mean of two is of order 1."""
    task, method, ends = noisy_task(), private(place), []
    for _ in range(2):
        strategy = ft.flower.Strategy(method, task, cohort=2, seed=5)
        strategy.start(grid_of(task, method), num_rounds=1)
        ends.append(weights(strategy.result.params))
    assert np.abs(ends[0] - ends[1]).max() > 1e-3


@pytest.mark.parametrize("part", [{"aggregator": "median"}, {"compression": "top_k(share=0.5)"}], ids=str)
def test_what_flower_does_not_carry_is_refused_with_the_reason(part):
    (name,) = part
    with pytest.raises(ValueError, match=f"{name} .* leave it out"):
        ft.flower.Strategy(ft.fedopt(ft.client.sgd(0.1), **part), clients=3)

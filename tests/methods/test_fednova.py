"""FedNova: unequal steps, momentum and pull leave no bias that a smaller rate does not remove."""

import numpy as np
import pytest

import fedtrue as ft

HESSIANS, MINIMA = [[1.0, 30.0], [20.0, 1.0], [5.0, 2.0]], [[2.0, 1.0], [-1.0, -2.0], [0.5, 0.0]]
WEIGHTS, STEPS = [0.2, 0.5, 0.3], [2, 7, 4]
BETA, MU = 0.6, 5.0
CLIENTS = {
    "sgd": (ft.client.sgd, {}),
    "heavy ball": (lambda rate: ft.client.momentum(rate, beta=BETA, dampening=0.0), {}),
    "pull": (ft.client.sgd, {"mu": MU}),
    "heavy ball and pull": (lambda rate: ft.client.momentum(rate, beta=BETA, dampening=0.0), {"mu": MU}),
}


def task(noise=0.0):
    return ft.tasks.quadratic(HESSIANS, MINIMA, weights=WEIGHTS, noise=noise)


@pytest.mark.parametrize("sampling", ["poisson", "poisson(fixed_denominator=false)", "optimal(share=0.5)"])
def test_equal_clients_move_as_far_as_with_averaging_whatever_the_sampling(sampling):
    """Σ w_i N_i is a mean over those that sent it: as an estimate its random factor would multiply the update's."""
    equal = ft.tasks.quadratic(np.ones((6, 2)), np.arange(6.0)[:, None] * [1.0, -1.0], start=[5.0, 5.0])
    common = {"sampling": sampling, "weighting": "uniform"}
    ends = [
        ft.train(equal, method, rounds=6, cohort=3, local_steps=4).params
        for method in (ft.methods.fednova(ft.client.sgd(0.05), **common), ft.methods.fedavg(0.05, **common))
    ]
    np.testing.assert_allclose(*ends, rtol=1e-12)


@pytest.mark.parametrize("name", CLIENTS)
def test_its_fixed_point_tends_to_the_minimiser_with_the_rate_and_that_of_averaging_does_not(name):
    client, options = CLIENTS[name]

    def distance(method):
        return np.linalg.norm(ft.theory.measured_fixed_point(task(), method, STEPS).params - task().minimiser)

    large, small = (distance(ft.methods.fednova(client(rate), **options)) for rate in (1e-3, 1e-4))
    assert small == pytest.approx(0.1 * large, rel=0.15)
    averaged = [distance(ft.methods.fedprox(client(rate), mu=options.get("mu", 0.0))) for rate in (1e-3, 1e-4)]
    assert averaged[1] > 0.5 * averaged[0] > 0.05


def published_weights(name, eta):
    """‖a_i‖₁ as the paper has it, for every client."""
    if name == "sgd":
        return [float(tau) for tau in STEPS]
    if name == "heavy ball":  # a_k = (1 − β^{τ−k}) / (1 − β)
        return [sum((1 - BETA**k) / (1 - BETA) for k in range(1, tau + 1)) for tau in STEPS]
    return [sum((1 - eta * MU) ** k for k in range(tau)) for tau in STEPS]  # a_k = (1 − η μ)^{τ−1−k}


@pytest.mark.parametrize("name", ["sgd", "heavy ball", "pull"])
def test_it_is_the_local_correction_at_the_published_server_rate(name):
    """x' = x − τ_eff Σ w_i Δ_i / ‖a_i‖₁ with τ_eff = Σ w_i ‖a_i‖₁; all clients take part, so τ_eff is a constant."""
    (client, options), eta = CLIENTS[name], 0.01
    tau_eff = float(np.dot(WEIGHTS, published_weights(name, eta)))
    run = lambda method: ft.train(task(noise=1.0), method, rounds=20, local_steps=STEPS, seed=3).params
    parts = {"server": ft.server.sgd(tau_eff), "correction": "local", "trace": "exact"}
    local = ft.methods.fedprox(client(eta), **options, **parts) if options else ft.fedopt(client(eta), **parts)
    by_mean = run(ft.methods.fednova(client(eta), **options))
    np.testing.assert_allclose(by_mean, run(local), rtol=1e-12)
    by_number = run(ft.methods.fednova(client(eta), **options, tau_eff=tau_eff))
    np.testing.assert_allclose(by_number, by_mean, rtol=1e-12)


def test_with_equal_steps_it_is_fedavg():
    """N_i = τ for all: τ mean(Δ_i / τ) = mean Δ_i."""
    run = lambda method: ft.train(task(noise=1.0), method, rounds=20, local_steps=4, cohort=2, seed=3).params
    np.testing.assert_allclose(run(ft.methods.fednova(ft.client.sgd(0.01))), run(ft.methods.fedavg(0.01)), rtol=1e-12)


def test_weight_decay_and_clipping_by_norm_are_those_of_the_local_correction():
    """Without momentum the decay has the trace of the gradients, and is multiplied by τ_eff = 3 like them."""
    client = ft.client.sgd(0.01, weight_decay=0.5, clip_norm=2.0)
    run = lambda method: ft.train(task(noise=1.0), method, rounds=20, local_steps=STEPS, cohort=2, seed=3).params
    local = ft.fedopt(client, ft.server.sgd(3.0), correction="local", trace="exact")
    np.testing.assert_allclose(run(ft.methods.fednova(client, tau_eff=3.0)), run(local), rtol=1e-12)


@pytest.mark.slow
def test_diagnosis_finds_the_bias_of_fedavg_and_none_in_fednova(tmp_path):
    def diagnosed(method, folder):
        ft.train(task(), method, rounds=50, local_steps=STEPS, out=folder)
        return ft.diagnose(folder, orders=2)

    fedavg, fednova = (
        diagnosed(method, tmp_path / method.name)
        for method in (ft.methods.fedavg(1e-3), ft.methods.fednova(ft.client.sgd(1e-3)))
    )
    biases = [found.diagnosis.numbers.pieces["bias"].norm for found in (fedavg, fednova)]
    assert biases[0] > 0.1 * fedavg.diagnosis.numbers.clients_scale
    assert biases[1] < 1e-12 * fednova.diagnosis.numbers.clients_scale


def test_one_round_by_hand():
    """F_1 = (x−1)², F_2 = 2 (x+1)², from x = 2, η = 0.1; one step and two steps."""
    two = ft.tasks.quadratic([[2.0], [4.0]], [[1.0], [-1.0]], start=[2.0])
    moved_1 = 0.1 * 2 * 1  # 0.2, N = 1
    moved_2 = 0.1 * (4 * 3 + 4 * 1.8)  # 1.92, N = 2
    x = 2 - 1.5 * (moved_1 / 1 + moved_2 / 2) / 2  # 2 − 1.5 · 0.58 = 1.13
    result = ft.train(two, ft.methods.fednova(ft.client.sgd(0.1)), rounds=1, local_steps=[1, 2])
    assert result.params == pytest.approx([x]) and x == pytest.approx(1.13)


def test_it_sends_one_number_besides_the_update_and_none_if_tau_eff_is_given():
    model = ft.tasks.from_arrays(
        [{"x": np.zeros((4, 1), np.float32)}] * 2,
        init=lambda key: {"a": np.zeros(5, np.float32), "b": np.zeros((2, 3), np.float32)},
        loss=lambda params, example: sum(((leaf - example["x"][0]) ** 2).sum() for leaf in params.values()),
        batch_size=2,
    )

    def bytes_up(**options):
        method = ft.methods.fednova(ft.client.sgd(0.1), **options)
        return ft.train(model, method, rounds=1, cohort=1).history["bytes_up"][0]

    assert (bytes_up(), bytes_up(tau_eff=3.0)) == (4 * 11 + 4, 4 * 11)  # 11 weights of 4 bytes


@pytest.mark.parametrize(
    "client, what",
    [
        (ft.client.adam(0.1), "'adam'"),
        (ft.client.muon(0.1), "'muon'"),
        (ft.client.sgd(0.1, clip_value=1.0), "clip_value"),
    ],
    ids=["adam", "muon", "clip_value"],
)
def test_clients_whose_trace_is_not_a_number_are_refused(client, what):
    with pytest.raises(ValueError, match=f"one number, and {what} has one per weight: use method fedopt with"):
        ft.methods.fednova(client)


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="fednova: tau_eff 'max' is not known"):
        ft.methods.fednova(ft.client.sgd(0.1), tau_eff="max")
    with pytest.raises(ValueError, match="fednova: tau_eff must be a finite number above 0, not 0"):
        ft.methods.fednova(ft.client.sgd(0.1), tau_eff=0)

"""Corrections and reports under methods that change the local gradients: which combinations keep the minimiser.

Two quadratics with different minima, curvatures and numbers of steps; full participation, no noise.
"""

import numpy as np
import pytest

import fedtrue as ft
from tests.methods import unequal_clients

TASK = ft.tasks.quadratic(hessians=[[1.0, 5.0], [4.0, 2.0]], minima=[[2.0, 1.0], [-1.0, -2.0]])
MEAN_GRADIENT = "local(report=mean_gradient)"


def distance(method, rate=0.02, **options):
    options = {"mu": 0.5, **options} if method == "fedprox" else options
    built = ft.methods.METHODS[method](client=ft.client.sgd(rate), **options)
    x = ft.train(TASK, built, rounds=int(30 / rate), local_steps=[2, 5]).params
    return np.linalg.norm(x - TASK.minimiser)


@pytest.mark.parametrize("method", ["scaffold", "mime"])
@pytest.mark.parametrize("correction", ["joint", MEAN_GRADIENT])
def test_methods_whose_clients_stay_at_the_minimiser_keep_it_with_any_correction(method, correction):
    """No client moves there and their mean gradient is 0, so every report sums to 0, however it is scaled."""
    assert distance(method, correction=correction) < 1e-12


@pytest.mark.parametrize("method", ["scaffold", "mime"])
@pytest.mark.parametrize("compression", ["sign", "top_k(share=0.5)"])
def test_their_updates_vanish_so_the_errors_of_compression_do_too(method, compression):
    """Of four clients, whose gradients at the minimiser are no multiples of each other. Mime's are sent whole."""
    built = ft.methods.METHODS[method](ft.client.sgd(0.005), correction="joint", compression=compression)
    x = ft.train(unequal_clients.task(), built, rounds=3000, local_steps=unequal_clients.STEPS).params
    assert np.linalg.norm(x - unequal_clients.task().minimiser) < 1e-6


@pytest.mark.parametrize("method", ["mime", "mimelite"])
def test_statistics_of_the_server_are_of_whole_gradients(method):
    """v holds squares of the mean gradient: where a sparse message has a 0, clients would divide by √0 + ε."""
    built = ft.methods.METHODS[method](ft.client.adam(0.002), compression="top_k(share=0.5)")
    x = ft.train(unequal_clients.task(), built, rounds=500, local_steps=unequal_clients.STEPS).params
    assert np.linalg.norm(x - unequal_clients.task().minimiser) < 0.5


@pytest.mark.parametrize("correction", ["joint", MEAN_GRADIENT])
def test_fedprox_with_a_correction_is_off_by_the_order_of_the_client_rate(correction):
    """The trace knows the pull and mean gradients are without it, so what is left is the drift: half of it at η/2."""
    far, near = (distance("fedprox", rate, correction=correction) for rate in (0.02, 0.01))
    assert 0.03 < near < 0.04 and 1.9 < far / near < 2.2


def test_fedprox_without_a_correction_is_off_at_every_rate():
    far, near = (distance("fedprox", rate, correction="none") for rate in (0.02, 0.01))
    assert 0.6 < far < 0.7 and 0.6 < near < 0.75


def test_mimelite_reports_gradients_at_the_start_beside_those_of_the_correction():
    """`moments` sends the mean gradient along the path, so its fixed point is that of the drift, not the minimiser."""
    assert 0.05 < distance("mimelite", correction="moments", server=ft.server.sgd(0.02)) < 0.1

"""A federation of unequal clients, which the tests of several methods share."""

import numpy as np

import fedtrue as ft

HESSIANS = np.array([[1.0, 30.0], [20.0, 1.0], [5.0, 2.0], [3.0, 8.0]])
MINIMA = np.array([[2.0, 1.0], [-1.0, -2.0], [0.5, 0.0], [4.0, 3.0]])
WEIGHTS, STEPS = [0.1, 0.4, 0.2, 0.3], [5, 35, 15, 10]


def task(noise=0.0):
    return ft.tasks.quadratic(HESSIANS, MINIMA, weights=WEIGHTS, noise=noise)

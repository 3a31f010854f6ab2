"""The paper's theory as numbers: fixed points, inconsistency, contraction and bounds.

Everything is computed by the same functions that train, in float64.
"""

from fedtrue.theory.bounds import (
    Recursion,
    gd_bound,
    sgd_bound,
    sgd_contraction,
    sgd_corollary,
    sgd_noise_factor,
    sgd_schedule,
    sgd_variance,
    theorem_1,
    theorem_1_schedule,
)
from fedtrue.theory.cohort import cohort_bias
from fedtrue.theory.contraction import contraction
from fedtrue.theory.fixed_point import (
    closed_form_fixed_point,
    closed_form_limit,
    measured_fixed_point,
    one_round_server_rate,
)
from fedtrue.theory.inconsistency import inconsistency, minimiser, reported_gradient, shrinkage
from fedtrue.theory.local_correction import measured_constants, theorem_3, theorem_3_rates
from fedtrue.theory.operator import expected, local_operators, pseudo_gradient, round_operator

__all__ = [
    "Recursion",
    "closed_form_fixed_point",
    "closed_form_limit",
    "cohort_bias",
    "contraction",
    "expected",
    "gd_bound",
    "inconsistency",
    "local_operators",
    "measured_constants",
    "measured_fixed_point",
    "minimiser",
    "one_round_server_rate",
    "pseudo_gradient",
    "reported_gradient",
    "round_operator",
    "sgd_bound",
    "sgd_contraction",
    "sgd_corollary",
    "sgd_noise_factor",
    "sgd_schedule",
    "sgd_variance",
    "shrinkage",
    "theorem_1",
    "theorem_1_schedule",
    "theorem_3",
    "theorem_3_rates",
]

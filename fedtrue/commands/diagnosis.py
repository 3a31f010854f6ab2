"""`fedtrue diagnose`."""

from argparse import Namespace
from collections.abc import Iterable
from math import isfinite
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from fedtrue.commands.answer import Answer, printed, table
from fedtrue.diagnosis import Diagnosis, Verdict, judge
from fedtrue.runner.diagnose_run import diagnose_run
from fedtrue.runner.records import read_summary
from fedtrue.spec import part_name, part_options

MEANINGS = {
    "weighting": "client weights that are not the task's",
    "bias": "clients' implicit weights N_i (non-vanishing)",
    "noise": "gradient noise met by its preconditioner",
    "drift": "clients moving as they step (vanishes with η)",
    "cohorts": "cohorts smaller than the federation",
}


SHOWN = 1e-4  # of the truth; less is nothing to a reader, and --json has it


def diagnose(options: Namespace) -> Answer:
    diagnosis = diagnose_run(options.run, clients=options.clients, orders=options.orders, progress=_progress)
    verdict, finished = judge(diagnosis), read_summary(options.run) is not None
    return Answer(document(diagnosis, verdict, finished), printed(*_shown(diagnosis, verdict, finished)))


def document(diagnosis: Diagnosis, verdict: Verdict, finished: bool) -> dict[str, Any]:
    """All numbers, and the sentence; what is not defined is null."""
    numbers, weights = diagnosis.numbers, diagnosis.client_weights
    return {
        "task": diagnosis.task,
        "method": method_name(diagnosis),
        "round": diagnosis.round,
        "finished": finished,
        "clients": {"looked_at": numbers.clients, "federation": diagnosis.federation, "dropped": numbers.dropped},
        "cohort": diagnosis.cohort,
        "orders": diagnosis.orders,
        "true_gradient": {
            "norm": numbers.gradient_norm,
            "standard_error": error if isfinite(error := numbers.gradient_standard_error) else None,
            "clients_own": numbers.client_gradient_norm,
        },
        "pseudo_gradient": {
            "norm": numbers.pseudo_gradient_norm,
            "cosine": numbers.cosine,
            "truth": numbers.truth,
            "left": numbers.left,
        },
        "client_weights": {**spread(weights), "each": weights.tolist()},
        "pieces": {
            name: {**piece._asdict(), "of_truth": piece.norm / numbers.truth if numbers.truth else None}
            for name, piece in numbers.pieces.items()
        },
        "scatter": {"batches": numbers.batch_scatter, "cohorts": numbers.cohort_scatter},
        "cause": verdict.cause,
        "biased": verdict.biased,
        "cure": verdict.cure,
        "sentence": verdict.sentence,
    }


def method_name(diagnosis: Diagnosis) -> str:
    """In a few words."""
    options = part_options(diagnosis.method)
    parts = [part_name(options[kind]) for kind in ("client", "correction") if kind in options]
    return f"{part_name(diagnosis.method)}, {' + '.join(parts)}" if parts else part_name(diagnosis.method)


def spread(weights: np.ndarray) -> dict[str, float]:
    """How the implicit weights lie about their mean."""
    names = ("min", "p10", "median", "p90", "max")
    quantiles = np.quantile(weights / weights.mean(), [0, 0.1, 0.5, 0.9, 1])
    return {"mean": float(weights.mean()), **dict(zip(names, quantiles.tolist()))}


def _shown(diagnosis: Diagnosis, verdict: Verdict, finished: bool) -> list[Any]:
    numbers, n = diagnosis.numbers, spread(diagnosis.client_weights)
    error = f" ± {numbers.gradient_standard_error:.3g}" if numbers.clients < diagnosis.federation else ""
    cosine = "0 but for rounding" if numbers.cosine is None else f"cosine with the truth {numbers.cosine:.3f}"
    state = "" if finished else ", not finished"
    facts = [
        ["true gradient", f"{numbers.gradient_norm:.4g}{error} (clients' own: {numbers.client_gradient_norm:.4g})"],
        ["expected pseudo-gradient", f"{numbers.pseudo_gradient_norm:.4g}, {cosine}"],
        ["N_i over their mean", f"{n['min']:.3g} to {n['max']:.3g}, median {n['median']:.3g} (mean {n['mean']:.4g})"],
        ["scatter of a round", f"{numbers.batch_scatter:.3g} by batches, {numbers.cohort_scatter:.3g} by cohorts"],
    ]
    rows = [["the true gradient, at the method's scale", "100 %", "+100 %"]] if numbers.truth else []
    rows += [_row(MEANINGS[name], piece.norm, piece.along, numbers.truth) for name, piece in numbers.pieces.items()]
    rows.append(["together: the expected pseudo-gradient", "", _percent(numbers.left, "+")])
    seen = f"{numbers.clients} of {diagnosis.federation:,} clients" + (
        f", {numbers.dropped} more diverged" if numbers.dropped else ""
    )
    return [
        table(f"{diagnosis.task}: {method_name(diagnosis)}, round {diagnosis.round}{state}", ["", seen], facts),
        table("What moves the server", ["", "size", "along the truth"], rows),
        verdict.sentence,
    ]


def _row(meaning: str, norm: float, along: float, truth: float) -> list[str]:
    return [meaning, _percent(norm / truth) if truth else f"{norm:.3g}", _percent(along, "+")]


def _percent(part: float, sign: str = "") -> str:
    return f"{100 * part:{sign}.3g} %" if abs(part) >= SHOWN else "0 %"


def _progress(visited: Iterable[Any], count: int) -> Iterable[Any]:
    console = Console(stderr=True)
    return track(visited, "clients", count, console=console, disable=not console.is_terminal, transient=True)

"""`fedtrue diagnose`."""

from argparse import Namespace
from collections.abc import Iterable
from math import isfinite
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from fedtrue.commands.answer import Answer, printer, table
from fedtrue.diagnosis import Diagnosis, Verdict, judge
from fedtrue.runner.diagnose_run import diagnose_run
from fedtrue.runner.exploded import exploded_text, find_exploded
from fedtrue.runner.records import METRICS, columns, read_lines, read_summary
from fedtrue.spec import part_name, part_options

PIECE_TITLES = {
    "weighting": "client weights other than the task's",
    "bias": "implicit client weights N_i (non-vanishing)",
    "noise": "noise correlated with its preconditioner",
    "drift": "client drift in local steps (vanishes with η)",
    "cohorts": "cohorts smaller than the federation",
}
MIN_SHARE_SHOWN = 1e-4  # of the true gradient; smaller shares are shown as 0 %, --json has them all


def diagnose(options: Namespace) -> Answer:
    diagnosis = diagnose_run(options.run, clients=options.clients, orders=options.orders, progress=_progress)
    verdict, is_finished = judge(diagnosis), read_summary(options.run) is not None
    parts = [_facts_table(diagnosis, is_finished), _pieces_table(diagnosis), verdict.sentence]
    facts = document(diagnosis, verdict, is_finished)
    if exploded := find_exploded(columns(read_lines(options.run / METRICS))):
        facts["exploded"] = exploded._asdict()
        parts.append(exploded_text(facts["exploded"], diagnosis.method))
    return Answer(facts, printer(*parts))


def document(diagnosis: Diagnosis, verdict: Verdict, is_finished: bool) -> dict[str, Any]:
    """All numbers and the sentence, for `--json`; undefined numbers are null."""
    numbers, weights = diagnosis.numbers, diagnosis.client_weights
    return {
        "task": diagnosis.task,
        "method": method_name(diagnosis),
        "round": diagnosis.round,
        "finished": is_finished,
        "clients": {"looked_at": numbers.clients, "federation": diagnosis.federation, "dropped": numbers.dropped},
        "cohort": diagnosis.cohort,
        "orders": diagnosis.orders,
        "true_gradient": {
            "norm": numbers.gradient_norm,
            "standard_error": error if isfinite(error := numbers.gradient_standard_error) else None,
            "clients_own": numbers.client_gradient_norm,
            "absent_from_first_batch": numbers.late_share,
        },
        "pseudo_gradient": {
            "norm": numbers.pseudo_gradient_norm,
            "cosine": numbers.cosine,
            "truth": numbers.truth,
            "left": numbers.left,
        },
        "client_weights": {**relative_quantiles(weights), "each": weights.tolist()},
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
    """'fedopt, adagrad + joint'."""
    options = part_options(diagnosis.method)
    parts = [part_name(options[kind]) for kind in ("client", "correction") if kind in options]
    return f"{part_name(diagnosis.method)}, {' + '.join(parts)}" if parts else part_name(diagnosis.method)


def relative_quantiles(weights: np.ndarray) -> dict[str, float]:
    """The mean of the implicit weights, and quantiles of the weights divided by it."""
    names = ("min", "p10", "median", "p90", "max")
    quantiles = np.quantile(weights / weights.mean(), [0, 0.1, 0.5, 0.9, 1])
    return {"mean": float(weights.mean()), **dict(zip(names, quantiles.tolist()))}


def _facts_table(diagnosis: Diagnosis, is_finished: bool) -> Any:
    numbers, weights = diagnosis.numbers, relative_quantiles(diagnosis.client_weights)
    error = f" ± {numbers.gradient_standard_error:.3g}" if numbers.clients < diagnosis.federation else ""
    cosine = "0 up to rounding" if numbers.cosine is None else f"cosine with the true gradient {numbers.cosine:.3f}"
    facts = [
        ["true gradient", f"{numbers.gradient_norm:.4g}{error} (of a client: {numbers.client_gradient_norm:.4g})"],
        ["expected pseudo-gradient", f"{numbers.pseudo_gradient_norm:.4g}, {cosine}"],
        ["absent from a client's first batch", f"{_percent(numbers.late_share)} of the clients' squared gradients"],
        [
            "N_i divided by their mean",
            f"{weights['min']:.3g} to {weights['max']:.3g}, median {weights['median']:.3g} "
            f"(mean {weights['mean']:.4g})",
        ],
        ["scatter of one round", f"{numbers.batch_scatter:.3g} by batches, {numbers.cohort_scatter:.3g} by cohorts"],
    ]
    clients = f"{numbers.clients} of {diagnosis.federation:,} clients"
    if numbers.dropped:
        clients += f", {numbers.dropped} more diverged"
    state = "" if is_finished else ", not finished"
    title = f"{diagnosis.task}: {method_name(diagnosis)}, round {diagnosis.round}{state}"
    return table(title, ["", clients], facts)


def _pieces_table(diagnosis: Diagnosis) -> Any:
    numbers = diagnosis.numbers
    rows = [["the true gradient, at the method's scale", "100 %", "+100 %"]] if numbers.truth else []
    for name, piece in numbers.pieces.items():
        size = _percent(piece.norm / numbers.truth) if numbers.truth else f"{piece.norm:.3g}"
        rows.append([PIECE_TITLES[name], size, _percent(piece.along, "+")])
    rows.append(["sum: the expected pseudo-gradient", "", _percent(numbers.left, "+")])
    return table("Parts of the expected pseudo-gradient", ["", "size", "along the true gradient"], rows)


def _percent(share: float, sign: str = "") -> str:
    return f"{100 * share:{sign}.3g} %" if abs(share) >= MIN_SHARE_SHOWN else "0 %"


def _progress(clients: Iterable[Any], count: int) -> Iterable[Any]:
    console = Console(stderr=True)
    return track(clients, "clients", count, console=console, disable=not console.is_terminal, transient=True)

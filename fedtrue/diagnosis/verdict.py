"""The interpretation of a diagnosis: the cause in one sentence, and what to do about it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtrue.diagnosis.decompose import Decomposition, Piece
from fedtrue.diagnosis.measure import Diagnosis
from fedtrue.spec import part_name, part_options

MIN_SHARE = 0.5  # of the true gradient: at a fixed point the pieces cancel it, so the cause has about half of it
MAX_DISAGREEMENT = 0.01  # of the clients' gradients: a mean gradient below a hundredth of them counts as converged
MIN_Z_SCORE = 2.0  # standard errors: a smaller effect can be explained by sampling alone

OF_MOMENTS = "cumulative=true or lagged=true in moments"
UNBIASED = "No non-vanishing bias of note"


@dataclass(frozen=True)
class Verdict:
    """The interpretation of the numbers."""

    cause: str | None  # the name of the piece that explains the deviation, if any
    biased: bool  # whether that piece remains for arbitrarily small client learning rates
    cure: str  # flags for the next run, or what else to do
    sentence: str


def judge(diagnosis: Diagnosis) -> Verdict:
    """The cause is the largest significant piece; a significant `bias` takes precedence."""
    numbers = diagnosis.numbers
    if numbers.clients < diagnosis.federation and _gradient_insignificant(numbers):
        return _undecided(diagnosis)
    significant = {name: piece for name, piece in numbers.pieces.items() if _is_significant(piece, numbers)}
    if not significant:
        return _unbiased(diagnosis)
    cause = "bias" if "bias" in significant else max(significant, key=lambda name: significant[name].norm)
    reason, cure = CAUSES[cause](diagnosis)
    size = _in_words(significant[cause].norm, numbers.truth)
    if cause == "drift":
        return Verdict(cause, False, cure, f"{UNBIASED}: what remains is {reason}, {size}: {cure}.")
    return Verdict(cause, True, cure, f"This run suffers from {reason}, {size}: {cure}.")


def _is_significant(piece: Piece, numbers: Decomposition) -> bool:
    large = piece.norm >= MIN_SHARE * numbers.truth and piece.norm >= MAX_DISAGREEMENT * numbers.clients_scale
    return large and piece.norm >= MIN_Z_SCORE * piece.standard_error


def _gradient_insignificant(numbers: Decomposition) -> bool:
    return numbers.gradient_norm < MIN_Z_SCORE * numbers.gradient_standard_error


def _undecided(diagnosis: Diagnosis) -> Verdict:
    numbers = diagnosis.numbers
    cure = f"sample more clients with --clients {min(4 * numbers.clients, diagnosis.federation)}"
    gradient = f"{numbers.gradient_norm:.3g} with a standard error of {numbers.gradient_standard_error:.3g}"
    sample = f"{numbers.clients} of {diagnosis.federation:,} clients"
    finding = f"With {sample} the true gradient cannot be distinguished from 0 ({gradient})"
    return Verdict(None, False, cure, f"{finding}: {cure}.")


def _unbiased(diagnosis: Diagnosis) -> Verdict:
    numbers = diagnosis.numbers
    agreement = numbers.gradient_norm / numbers.client_gradient_norm if numbers.client_gradient_norm else 0.0
    if agreement <= MAX_DISAGREEMENT:
        rest = f"the true gradient is {_percent(agreement)} of the clients' own, this run has converged"
        return Verdict(None, False, "nothing", f"{UNBIASED}: {rest}.")
    scatter = np.hypot(numbers.batch_scatter, numbers.cohort_scatter)
    if scatter > numbers.pseudo_gradient_norm:
        from_batches = numbers.batch_scatter**2 / scatter**2
        cure = (
            "decay the learning rates"
            if diagnosis.cohort == diagnosis.federation
            else "decay the learning rates or use a larger --cohort"
        )
        rest = (
            f"what remains is the scatter of single rounds, {scatter / numbers.pseudo_gradient_norm:.2g} times their "
            f"mean ({_percent(from_batches)} of its variance from gradient noise, "
            f"{_percent(1 - from_batches)} from small cohorts)"
        )
        return Verdict(None, False, cure, f"{UNBIASED}; {rest}: {cure}.")
    return Verdict(None, False, "train for more rounds", f"{UNBIASED}: the run still descends, train for more rounds.")


def _option(diagnosis: Diagnosis, name: str) -> Any:
    """An option of the run's method, None if it has none of this name."""
    return diagnosis.method.get(name) if isinstance(diagnosis.method, dict) else None


def _choice(diagnosis: Diagnosis, name: str) -> str | None:
    """The name of a part of the run's method."""
    spec = _option(diagnosis, name)
    return None if spec is None else part_name(spec)


def _client_option(diagnosis: Diagnosis, name: str) -> Any:
    spec = _option(diagnosis, "client")
    return spec.get(name) if isinstance(spec, dict) else None


def _bias(diagnosis: Diagnosis) -> tuple[str, str]:
    n = diagnosis.client_weights / diagnosis.client_weights.mean()
    if _choice(diagnosis, "correction") not in (None, "none"):
        cure = "use --trace first_gradient"
        if _choice(diagnosis, "trace") == "exact":
            return "the bias of the exact trace, which fails for weights without a gradient in a first batch", cure
        return "the bias of the paper's trace, which is not what the clients' preconditioners add up to", cure
    if diagnosis.control_variates:
        return "control variates that have not converged yet", "train for more rounds"
    reason = f"the non-vanishing bias of uncorrected clients, which enter with {n.min():.2g} to {n.max():.2g} times"
    cure = "use --correction joint"
    if _choice(diagnosis, "correction") is None:
        cure = "use --method fedopt --client sgd --correction joint"
    if diagnosis.cohort == 1:
        cure = "use --correction local with an adaptive server (joint corrects nothing with one client per round)"
    return f"{reason} their mean weight", cure


def _weighting(diagnosis: Diagnosis) -> tuple[str, str]:
    sampling = _choice(diagnosis, "sampling")
    weights = _choice(diagnosis, "weighting") or ("uniform" if sampling == "by_size" else diagnosis.objective)
    if sampling == "by_size":
        return f"sampling by size with {weights} weights", "use --sampling uniform and leave --weighting out"
    return f"{weights} weights where the task counts {diagnosis.objective}", "leave --weighting out"


def _correction(diagnosis: Diagnosis) -> tuple[str | None, dict[str, Any]]:
    """Its name and options; those of the method `moments` are the method's own."""
    spec = diagnosis.method if part_name(diagnosis.method) == "moments" else _option(diagnosis, "correction")
    return (None, {}) if spec is None else (part_name(spec), part_options(spec))


def _noise(diagnosis: Diagnosis) -> tuple[str, str]:
    reason = "the bias of gradient noise, which a smaller learning rate does not remove"
    name, options = _correction(diagnosis)
    if name == "moments":
        return reason, f"use {OF_MOMENTS}, or a larger --batch-size (now {diagnosis.batch_size})"
    cures = [f"a larger --batch-size (now {diagnosis.batch_size})"]
    if _client_option(diagnosis, "lagged") is False:
        start = "" if _client_option(diagnosis, "initial_accumulator") else " --set client.initial_accumulator=0.1"
        cures.insert(0, f"--set client.lagged=true{start}")
    if name in ("local", "joint") and options.get("report", "update") == "update":
        cures.insert(0, "--correction 'local(report=mean_gradient)' with an adaptive server")
    return reason, f"use {', or '.join(cures)}"


def _drift(diagnosis: Diagnosis) -> tuple[str, str]:
    rate = _option(diagnosis, "client_rate") or _client_option(diagnosis, "learning_rate")
    reason = "client drift during the local steps, which vanishes with the client learning rate"
    if not isinstance(rate, int | float):
        return reason, "decay it, a smaller client learning rate"
    return reason, f"decay it, --client-rate 'cosine({rate:.2g}, length=ROUNDS)', or use --client-rate {rate / 10:.2g}"


def _cohorts(diagnosis: Diagnosis) -> tuple[str, str]:
    reason = f"the bias of a ratio taken over cohorts of {diagnosis.cohort}"
    larger = f"a --cohort of {min(2 * diagnosis.cohort, diagnosis.federation)} or more"
    name, options = _correction(diagnosis)
    averaged = {"joint": "--correction 'joint(beta=0.99)'", "moments": OF_MOMENTS}
    already = options.get("beta") is not None if name == "joint" else options.get("lagged") or options.get("cumulative")
    return reason, f"use {averaged[name]}, or {larger}" if name in averaged and not already else f"use {larger}"


CAUSES: dict[str, Callable[[Diagnosis], tuple[str, str]]] = {  # piece → (what it is, what to do)
    "weighting": _weighting,
    "bias": _bias,
    "noise": _noise,
    "drift": _drift,
    "cohorts": _cohorts,
}


def _in_words(size: float, truth: float) -> str:
    if size > 10 * truth:
        return "far more than what is left of the true gradient"
    return f"{_percent(size / truth)} of what is left of the true gradient"


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %" if part < 0.995 else f"{100 * part:.0f} %"

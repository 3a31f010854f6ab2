"""Does a run suffer from the non-vanishing bias? Its last checkpoint is opened and a round there is taken apart.

`measure` finds the numbers that `theory.diagnosis` defines, `judge` says in one sentence what they mean.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.checks import whole
from fedtrue.algorithm.client_optimizer import CLIENT_OPTIMIZERS
from fedtrue.algorithm.method import Method
from fedtrue.data.batches import steps_per_epoch
from fedtrue.engine.program import State, initial_state
from fedtrue.engine.window import Window
from fedtrue.precision import float64
from fedtrue.runner import checkpoint, folder
from fedtrue.runner.config import RunConfig, read_toml
from fedtrue.runner.records import CONFIG, read_summary
from fedtrue.tasks.task import Task
from fedtrue.theory.anatomy import Anatomy, Piece, anatomy
from fedtrue.theory.diagnosis import Parts, Setting, Visited, add_up, draw_cohorts

CLIENTS = 100  # looked at, of a larger federation: a standard error of a tenth of how clients differ
ORDERS = 8  # batch orders an expectation is taken over: its standard error is a third of one round's scatter
COHORTS = (16, 4096)  # drawn at least and at most; all of them are taken where there are no more
COHORT_BYTES = 2**28  # for the sums of the cohorts: one model a cohort, twice

WEIGHTY = 0.5  # of the truth: where a run stands still its pieces cancel the truth, so one to blame has about half
ARRIVED = 0.01  # of the clients' own gradients: clients that cancel to a hundredth agree on where they stand
SURE = 2.0  # standard errors: fewer, and sampling alone explains what was found

UNBIASED = "No non-vanishing bias to speak of"

Passing = Callable[[Iterable[Visited], int], Iterable[Visited]]  # clients and how many: for a progress bar


@dataclass(frozen=True)
class Diagnosis:
    """A run's last model, taken apart."""

    config: RunConfig  # as the folder has it, every choice spelled out
    objective: str  # what the task weighs clients by
    round: int
    finished: bool
    federation: int  # clients there are
    cohort: int
    orders: int
    client_weights: np.ndarray  # n_i of the clients looked at
    numbers: Anatomy


@dataclass(frozen=True)
class Verdict:
    """What the numbers mean."""

    cause: str | None  # the piece to blame, if any
    biased: bool  # whether that piece outlives any decay of the client rate
    cure: str  # flags for the next run, or what else to do
    sentence: str


def measure(
    run: Path, clients: int = CLIENTS, orders: int = ORDERS, passing: Passing = lambda visited, count: visited
) -> Diagnosis:
    """Takes a round at the run's last checkpoint apart, over at least `clients` of its clients."""
    whole("clients", clients, low=1)
    whole("orders", orders, low=1)
    if not folder.is_run_folder(run):
        raise ValueError(f"{run} is not a run folder: fedtrue run TASK --out {run} makes one")
    config = read_toml(run / CONFIG)
    found = checkpoint.newest(run / "checkpoints", lambda line: None)
    if found is None:
        raise ValueError(f"{run} has no checkpoint yet: let it go on (fedtrue resume {run}), then diagnose")
    task = config.load_task()
    method = config.build_method(task)
    with float64(task.float64):
        params = task.init(jax.random.key(config.seed))
        state = checkpoint.restored(found, initial_state(method, task.loss, params, len(task.train)))
        look = Look(config, task, method, state, found.round, clients, orders)
        sums, weights = add_up(
            task,
            parts_of(config, task),
            look.setting,
            method.learning_rate(found.round),
            state.server._replace(optimizer=()),
            passing(look.visits(), len(look.clients)),
        )
        if not sums.clients:
            raise ValueError(f"from the model in {run} every client diverges: train with a smaller --client-rate")
        numbers = anatomy(sums, look.cohort, len(task.train), look.all_cohorts)
    return Diagnosis(
        config=config.resolved(task),
        objective=task.weighting,
        round=found.round,
        finished=read_summary(run) is not None,
        federation=len(task.train),
        cohort=look.cohort,
        orders=orders,
        client_weights=weights[np.isfinite(weights)],
        numbers=numbers,
    )


def parts_of(config: RunConfig, task: Task) -> Parts:
    """What the run's clients do. Every named method has uncorrected SGD clients (a test holds us to it)."""
    if config.method is not None:
        sgd = CLIENT_OPTIMIZERS["sgd"](config.client.options["learning_rate"])
        return Parts(sgd, "none", config.trace, config.client_state)
    optimizer = config.resolved(task).client.build("client", CLIENT_OPTIMIZERS)
    return Parts(optimizer, config.correction, config.trace, config.client_state)


class Look:
    """Whom a diagnosis looks at, and in which cohorts."""

    def __init__(
        self, config: RunConfig, task: Task, method: Method, state: State, done: int, clients: int, orders: int
    ):
        everyone = len(task.train)
        self.cohort = config.cohort or task.cohort or everyone
        enough = clients if self.cohort == everyone else max(clients, 2 * self.cohort)  # cohorts must differ
        count = min(everyone, enough)
        self.clients = np.sort(np.random.default_rng(config.seed).choice(everyone, count, replace=False))
        self._data, self._state = task.train.subset(self.clients), state
        self._steps = task.steps_of_clients(config.steps_of_clients(task))
        self._multipliers = task.multipliers_of_clients(config.rate_multipliers)
        self._objective = task.client_weights()
        self._weights = task.client_weights(method.weighting)
        sizes = np.asarray(task.client_weights("examples"))[self.clients]
        bytes_each = 2 * sum(leaf.nbytes for leaf in jax.tree.leaves(state.server.params))
        most = int(np.clip(COHORT_BYTES // bytes_each, *COHORTS))
        drawn = draw_cohorts(method.sample, sizes, min(self.cohort, count), most, config.seed)
        self._drawn, self._probability, self.all_cohorts = drawn
        passes = -(-self._steps[self.clients] // steps_per_epoch(self._data.sizes, task.batch_size))
        self.setting = Setting(int(self._data.sizes.max()), int(passes.max()), config.seed, done, orders)

    def visits(self) -> Iterator[Visited]:
        """One client after another, its rows in a buffer of fixed size."""
        window = Window(self._data, cohort=1, most_rounds=1)
        real = lambda number: jnp.asarray(number, jnp.result_type(float))
        for place, client in enumerate(self.clients):
            columns, starts = window.filled(np.array([place]))
            yield Visited(
                columns=columns,
                start=starts[place],
                client=jnp.int32(client),
                size=jnp.int32(self._data.sizes[place]),
                steps=jnp.int32(self._steps[client]),
                rate_multiplier=real(self._multipliers[client]),
                memory=jax.tree.map(partial(_row, client), self._state.memory),
                objective_weight=real(self._objective[client]),
                weight=real(self._weights[client]),
                probability=real(self._probability[place]),
                drawn=real(self._drawn[:, place]),
            )


def _row(client: int, rows: np.ndarray) -> jax.Array:
    return jnp.asarray(rows[client])


def judge(diagnosis: Diagnosis) -> Verdict:
    """The largest piece that matters is to blame; the bias of the clients' weights comes first if it does."""
    numbers = diagnosis.numbers
    if diagnosis.numbers.clients < diagnosis.federation and _cannot_tell(numbers):
        return _unsure(diagnosis)
    guilty = {name: piece for name, piece in numbers.pieces.items() if _matters(piece, numbers)}
    if not guilty:
        return _innocent(diagnosis)
    cause = "bias" if "bias" in guilty else max(guilty, key=lambda name: guilty[name].norm)
    reason, cure = CAUSES[cause](diagnosis)
    size = _in_words(guilty[cause].norm, numbers.truth)
    if cause == "drift":
        return Verdict(cause, False, cure, f"{UNBIASED}: what remains is {reason}, {size}: {cure}.")
    return Verdict(cause, True, cure, f"This run suffers from {reason}, {size}: {cure}.")


def _matters(piece: Piece, numbers: Anatomy) -> bool:
    large = piece.norm >= WEIGHTY * numbers.truth and piece.norm >= ARRIVED * numbers.clients_scale
    return large and piece.norm >= SURE * piece.standard_error


def _cannot_tell(numbers: Anatomy) -> bool:
    return numbers.gradient_norm < SURE * numbers.gradient_standard_error


def _unsure(diagnosis: Diagnosis) -> Verdict:
    numbers = diagnosis.numbers
    cure = f"look at more with --clients {min(4 * numbers.clients, diagnosis.federation)}"
    found = f"{numbers.gradient_norm:.3g} with a standard error of {numbers.gradient_standard_error:.3g}"
    seen = f"{numbers.clients} of {diagnosis.federation:,} clients cannot tell the true gradient from 0 ({found})"
    return Verdict(None, False, cure, f"{seen}: {cure}.")


def _innocent(diagnosis: Diagnosis) -> Verdict:
    numbers = diagnosis.numbers
    agreement = numbers.gradient_norm / numbers.client_gradient_norm if numbers.client_gradient_norm else 0.0
    if agreement <= ARRIVED:
        rest = f"the true gradient is {_percent(agreement)} of the clients' own, this run has arrived"
        return Verdict(None, False, "nothing", f"{UNBIASED}: {rest}.")
    scatter = np.hypot(numbers.batch_scatter, numbers.cohort_scatter)
    if scatter > numbers.pseudo_gradient_norm:
        from_batches = numbers.batch_scatter**2 / scatter**2
        cure = "decay the rates" if diagnosis.cohort == diagnosis.federation else "decay the rates or enlarge --cohort"
        rest = (
            f"what remains is the scatter of single rounds, {scatter / numbers.pseudo_gradient_norm:.2g} times their "
            f"mean ({_percent(from_batches)} of its variance from gradient noise, "
            f"{_percent(1 - from_batches)} from small cohorts)"
        )
        return Verdict(None, False, cure, f"{UNBIASED}; {rest}: {cure}.")
    return Verdict(None, False, "train on", f"{UNBIASED}: the run still descends, train on.")


def _bias(diagnosis: Diagnosis) -> tuple[str, str]:
    config, n = diagnosis.config, diagnosis.client_weights / diagnosis.client_weights.mean()
    if config.method is None and config.correction != "none":
        reason = "the bias of the paper's trace, which is not what the clients' preconditioners add up to"
        return reason, "switch on --trace exact"
    reason = f"the non-vanishing bias of uncorrected clients, which enter with {n.min():.2g} to {n.max():.2g} times"
    cure = "switch on --correction joint"
    if diagnosis.cohort == 1:
        cure = "switch on --correction local with an adaptive server (joint corrects nothing with one client a round)"
    return f"{reason} their mean weight", cure


def _weighting(diagnosis: Diagnosis) -> tuple[str, str]:
    config = diagnosis.config
    weights = config.weighting or ("uniform" if config.sampling == "by_size" else diagnosis.objective)
    if config.sampling == "by_size":
        return f"sampling by size with {weights} weights", "use --sampling uniform and leave --weighting out"
    return f"{weights} weights where the task counts {diagnosis.objective}", "leave --weighting out"


def _noise(diagnosis: Diagnosis) -> tuple[str, str]:
    reason = "the bias of gradient noise, which no correction sees and no smaller rate mends"
    options = diagnosis.config.client.options
    if options.get("lagged") is not False:
        return reason, f"enlarge --batch-size (now {diagnosis.config.batch_size})"
    start = "" if options["initial_accumulator"] else " --set client.initial_accumulator=0.1"
    return reason, f"switch on --set client.lagged=true{start}, or enlarge --batch-size"


def _drift(diagnosis: Diagnosis) -> tuple[str, str]:
    rate = diagnosis.config.client.options["learning_rate"]
    reason = "clients' moving while they step, which vanishes with the client rate"
    return reason, f"decay it, --client-rate {rate / 10:.2g}"


def _cohorts(diagnosis: Diagnosis) -> tuple[str, str]:
    reason = f"the bias of a ratio taken over cohorts of {diagnosis.cohort}"
    cure = f"enlarge --cohort to {min(2 * diagnosis.cohort, diagnosis.federation)} or more"
    corrected = diagnosis.config.method is None and diagnosis.config.correction == "joint"
    return reason, cure + (", or use --correction local with an adaptive server" if corrected else "")


CAUSES: dict[str, Callable[[Diagnosis], tuple[str, str]]] = {  # piece → (what it is, what to do)
    "weighting": _weighting,
    "bias": _bias,
    "noise": _noise,
    "drift": _drift,
    "cohorts": _cohorts,
}


def _in_words(size: float, truth: float) -> str:
    if size > 10 * truth:
        return "far more than is left of the true gradient"
    return f"{_percent(size / truth)} of what is left of the true gradient"


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %" if part < 0.995 else f"{100 * part:.0f} %"

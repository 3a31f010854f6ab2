"""The server: any fedtrue method as a strategy of Flower."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result as FlowerResult
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedtrue.algorithm import aggregation
from fedtrue.algorithm.checks import check_int
from fedtrue.algorithm.interface import Context, Phase, ServerState
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.sampling import client_sizes
from fedtrue.algorithm.scored_sampling import tree_norm
from fedtrue.algorithm.upload import privacy_of
from fedtrue.engine.capacity import MessageBytes
from fedtrue.engine.round import State, sampling_key
from fedtrue.engine.upload_checks import check_privacy
from fedtrue.flower.client import method_text
from fedtrue.flower.directory import LOG, Directory
from fedtrue.flower.exchange import Exchange, RoundRecord
from fedtrue.flower.noise import noise_key
from fedtrue.flower.replies import NotFinite, added, expected_contributions, read_reply
from fedtrue.flower.run_folder import open_run, run_identity
from fedtrue.flower.wire import ARRAYS, CONFIG, SHARED, to_record, weights_from, wire_bytes
from fedtrue.precision import float64
from fedtrue.runner.evaluation import Evaluator
from fedtrue.runner.folder import RunLock
from fedtrue.runner.host_schedule import HostSchedule
from fedtrue.runner.journal import Journal, Result, newest_checkpoints
from fedtrue.tasks.task import Task, metric_names


class Strategy(FlowerStrategy):
    """Any fedtrue method as a strategy of a Flower `ServerApp`.

    The server adds up what clients send, each already multiplied by its weight, and hands the sums to the method. A
    reply that cannot be used is named in the log, counted in the records, and never added. With `out` it keeps a run
    folder; started again with the same folder, it resumes from its last checkpoint.

    Args:
        method: `ft.fedopt(…)`, or one of `ft.methods`; with `client_app` the clients' too.
        task: for the initial weights, the names of metrics and the held-out data; None: the weights are given to
            `start`, and nothing is evaluated.
        clients: in the federation, numbered by the `partition-id` of their nodes; without it, those of the task.
        cohort: clients per round; without it the task's, or all.
        seed: of weights, cohorts and batches.
        min_replies: with fewer good replies a round is skipped: the weights stay as they are.
        start_timeout: seconds to wait for all clients before the first round.
        out: a run folder: settings, records, checkpoints and the final weights.
        evaluate_every: rounds between evaluations on the task's held-out data; after the last round it is always
            evaluated.
        checkpoint_every: rounds.
        metrics: names of what clients report, if there is no task.
        name: of the run's task in reports, if there is no task.
        secret_noise: draw the server's noise of a method with `privacy` from the operating system; False: from the
            seed, as the simulation does. Clients know the seed, so nothing is private to them then.

    >>> import fedtrue as ft
    >>> strategy = ft.flower.Strategy(ft.fedopt(ft.client.adam(0.01)), clients=3, cohort=2)
    """

    result: Result | None = None  # of the last `start`: records, summary and weights, as `ft.train` returns them

    def __init__(
        self,
        method: Method,
        task: Task | None = None,
        *,
        clients: int | None = None,
        cohort: int | None = None,
        seed: int = 0,
        min_replies: int = 1,
        start_timeout: float = 600.0,
        out: str | Path | None = None,
        evaluate_every: int | None = None,
        checkpoint_every: int = 1,
        metrics: Sequence[str] = ("loss",),
        name: str = "flower",
        secret_noise: bool = True,
    ):
        if clients is None and task is None:
            raise ValueError("the server does not know how many clients there are: give clients=…")
        self.method, self.task, self.seed = method, task, check_int("seed", seed, high=2**32 - 1)
        self.clients = check_int("clients", len(task.train) if clients is None and task else clients, low=1)
        asked = cohort or (task.cohort if task else None) or self.clients
        self.cohort = check_int("cohort", min(asked, self.clients) if cohort is None else cohort, low=1)
        self.min_replies = check_int("min_replies", min_replies, low=1)
        _check_method(method, self.clients, self.cohort)
        self.out = None if out is None else Path(out)
        self.name, self.start_timeout = name, start_timeout
        self.evaluate_every, self.checkpoint_every = evaluate_every, checkpoint_every
        self.metrics = tuple(metric_names(task).trained) if task else tuple(metrics)
        self.directory = Directory(self.clients)
        privacy = method.upload.privacy
        self._secret_noise = secret_noise and privacy is not None and privacy.central
        self._receive: dict[int, Callable[..., Any]] = {}
        self._exchange: Exchange | None = None

    def summary(self) -> None:
        """Says what is trained, in the log."""
        LOG.info("fedtrue: %s, %d of %d clients per round", method_text(self.method), self.cohort, self.clients)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> FlowerResult:
        """Trains up to round `num_rounds`, from the last checkpoint of the run folder if it has one.

        Args:
            grid: of the `ServerApp`.
            initial_arrays: the weights before round 0, e.g. `ft.flower.arrays(model)`; without them, the task's.
            num_rounds: of the whole run.
            timeout: seconds in which clients must reply; later replies are counted as missing.
            train_config: more for the clients' config.
            evaluate_config: not used: held-out data is evaluated at the server.
            evaluate_fn: called as `evaluate_fn(round, arrays)` after the rounds that are evaluated; its metrics are
                recorded as those of the split `test`.

        Returns:
            Flower's result with the final arrays; `.result` has fedtrue's.
        """
        schedule = HostSchedule(num_rounds, self.evaluate_every, self.checkpoint_every)
        config = dict(train_config or {})
        with (
            float64(bool(self.task and self.task.float64)),
            RunLock(self.out) if self.out else nullcontext(),
        ):
            journal = self._begin(initial_arrays, num_rounds)
            self.summary()
            if journal.done < num_rounds:
                self.directory.wait(grid, self.min_replies, self.start_timeout)
            while journal.done < num_rounds and not journal.ended:
                self._round(grid, journal, schedule, timeout, config, evaluate_fn)
            self.result = journal.close(State(self.server, ()))
        found = FlowerResult()
        found.arrays = to_record(self.result.params)
        return found

    def _begin(self, initial_arrays: ArrayRecord | None, rounds: int) -> Journal:
        """The server's state before the first round that is left, and the records up to it."""
        if initial_arrays is None and self.task is None:
            raise ValueError(
                "the server has no weights to start from: give start(…, initial_arrays=ft.flower.arrays(model))"
            )
        if initial_arrays is not None:
            params = jax.tree.map(jnp.asarray, weights_from(initial_arrays))
        else:
            assert self.task is not None
            params = self.task.init(jax.random.key(self.seed))
        self.server: ServerState = self.method.init(params)
        context = Context(0, jax.random.key(0), self.clients, self.cohort)
        last = self.method.all_phases[-1]
        check_privacy(self.method, expected_contributions(last, self.server, context))
        kinds = (self.task.metric_kinds, self.task.model_weights) if self.task else ({}, None)
        journal = Journal(
            self.out,
            self.clients,
            MessageBytes(*[(0,) * len(self.method.all_phases)] * 3),
            kinds[0],
            self.method.spec,
            kinds[1],
            privacy_of(self.method, self.clients, self.cohort),
        )
        if self.out is not None:
            arguments = {
                "rounds": rounds,
                "cohort": self.cohort,
                "seed": self.seed,
                "evaluate_every": self.evaluate_every,
            }
            open_run(
                self.out, self.task or self.name, self.method, {**arguments, "checkpoint_every": self.checkpoint_every}
            )
        saved = newest_checkpoints([journal], LOG.warning)
        if saved:
            state = journal.restored(saved[0], jax.tree.map(np.asarray, State(self.server, ())))
            self.server = jax.tree.map(jnp.asarray, state.server)
            LOG.info("fedtrue: %s resumes after round %d", self.out, saved[0].round)
        journal.open(saved[0] if saved else None)
        self._resumed, self._run = bool(saved), uuid4().hex if self.out is None else run_identity(self.out)
        self._evaluator = Evaluator(self.task) if self.task else None
        return journal

    def _round(
        self,
        grid: Grid,
        journal: Journal,
        schedule: HostSchedule,
        timeout: float,
        config: Mapping[str, Any],
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    ) -> None:
        """Each phase in turn, then the records and, when due, evaluation and checkpoint."""
        began, record = time.perf_counter(), RoundRecord(journal.done)
        for number, _ in enumerate(self.method.all_phases):
            self._exchange = record.new(number)
            arrays = to_record(self.server.params)
            messages = list(self.configure_train(journal.done + 1, arrays, ConfigRecord(dict(config)), grid))
            replies = list(grid.send_and_receive(messages, timeout=timeout)) if messages else []
            self.aggregate_train(journal.done + 1, replies)
            if not self._exchange.received:
                break
        done, evaluated, more = journal.done + 1, {}, record.measured()
        if schedule.evaluation_due(done):
            if self._evaluator is not None:
                evaluated = self._evaluator.of_splits(self.server.params)[0]
            metrics = evaluate_fn(done, to_record(self.server.params)) if evaluate_fn else None
            if metrics is not None:
                more |= {"evaluation": {"test": dict(metrics)}, "spread": {"test": {}}}
        journal.record(
            record.info(self.metrics, len(self.method.all_phases)), time.perf_counter() - began, evaluated, more
        )
        if schedule.checkpoint_due(done):
            journal.save(jax.tree.map(np.asarray, State(self.server, ())))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of a phase: the cohort is the simulation's, as far as its nodes are online."""
        exchange = self._exchange or RoundRecord(server_round - 1).new(0)
        self._exchange, online = exchange, self.directory.look(grid)
        phase, context = self._phase(exchange.number), self._context(exchange)
        if phase.sampling is not None or not exchange.drawn:
            exchange.draw(self._draw(phase, context))
        broadcast = phase.broadcast(self.server, context)
        known = self.directory.known
        sent = [client for client in exchange.drawn if client in known and known[client].node in online]
        records: dict[str, Any] = {ARRAYS: to_record(broadcast.params)}
        if jax.tree.leaves(broadcast.shared):
            records[SHARED] = to_record(broadcast.shared)
        records[CONFIG] = ConfigRecord({**config, **self._config(exchange, context)})
        for client in sent:
            content = RecordDict(records)
            message = Message(content, known[client].node, MessageType.TRAIN, group_id=str(server_round))
            exchange.bytes_down += wire_bytes(message)
            yield message

    def _config(self, exchange: Exchange, context: Context) -> dict[str, Any]:
        weighting = self.method.weighting
        return {
            "server-round": exchange.round + 1,
            "round": exchange.round,
            "phase": exchange.number,
            "seed": self.seed,
            "clients": context.clients,
            "cohort": context.cohort,
            "objective-total": self.directory.objective_total,
            "method": method_text(self.method),
            "run": self._run,
            "resumed": self._resumed,
            "weighting": "objective" if weighting is None else str(weighting.name),
        }

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Adds up the good replies and lets the method receive the sums; with too few the weights stay as they are."""
        exchange = self._exchange
        assert exchange is not None, "configure_train comes before aggregate_train"
        phase, context = self._phase(exchange.number), self._context(exchange)
        expected = expected_contributions(phase, self.server, context)
        for message in replies:
            self._take(exchange, message, expected)
        # a server that adds noise does so for an empty cohort too: the privacy account knows no skipped rounds
        if len(exchange.good) < self.min_replies and not phase.receives_nothing:
            LOG.warning(
                "fedtrue: round %d is skipped: %d good replies of %d clients, and min_replies is %d (%d missing, %d "
                "refused, %d not finite)",
                *(exchange.round, len(exchange.good), len(exchange.drawn), self.min_replies),
                *(exchange.missing, exchange.refused, exchange.dropped),
            )
            return None, None
        clients = sorted(exchange.good)
        sums = added([exchange.good[c] for c in clients], [exchange.drawn[c] for c in clients], expected)
        sampling = self.method.sampling
        if sampling.fixed_denominator:
            assert sampling.rate is not None, "a fixed denominator is for samplings with a rate"
            weights = jax.tree.map(jnp.asarray, self.directory.weights)
            sums = aggregation.with_expected_weights(sums, weights, sampling.rate(context.clients, context.cohort))
        self.server, pseudo_gradient = self._receiving(exchange.number)(self.server, sums, context.round, context.key)
        exchange.received, exchange.norm = True, float(tree_norm(pseudo_gradient))
        return to_record(self.server.params), None

    def _take(self, exchange: Exchange, message: Message, expected: Any) -> None:
        node = message.metadata.src_node_id
        client = self.directory.client_of(node)
        if client is None or client not in exchange.drawn or client in exchange.replied:
            LOG.warning("fedtrue: round %d: node %s was not asked, its reply is not used", exchange.round, node)
            return
        if message.has_error():
            reason = (message.error.reason or "no reason given").strip().splitlines()[-1]
            LOG.warning("fedtrue: round %d: client %d does not reply: %s", exchange.round, client, reason)
            return
        exchange.replied.add(client)
        exchange.bytes_up += wire_bytes(message)
        try:
            exchange.good[client] = read_reply(message, client, expected)
        except NotFinite as error:
            exchange.dropped += 1
            LOG.warning("fedtrue: round %d: client %d is dropped: %s", exchange.round, client, error)
        except (ValueError, TypeError) as error:  # TypeError: e.g. a list in place of a number
            exchange.refused += 1
            LOG.warning("fedtrue: round %d: client %d is refused: %s", exchange.round, client, error)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: held-out data is evaluated at the server."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing: held-out data is evaluated at the server."""
        return None

    def _phase(self, number: int) -> Phase:
        return self.method.all_phases[number]

    def _context(self, exchange: Exchange) -> Context:
        cohort = self._phase(exchange.number).cohort or self.cohort
        key = noise_key(self._secret_noise, jnp.uint32(self.seed), exchange.round, exchange.number)
        return Context(exchange.round, key, self.clients, cohort)

    def _draw(self, phase: Phase, context: Context) -> list[int]:
        """The clients of a phase, one entry per draw."""
        assert phase.sampling is not None and self._exchange is not None
        key = sampling_key(jnp.uint32(self.seed), jnp.int32(context.round), self._exchange.number)
        draw = phase.sampling.draw(context._replace(key=key), client_sizes(self.directory.sizes), None)
        return np.asarray(draw.clients)[np.asarray(draw.active)].tolist()

    def _receiving(self, number: int) -> Callable[..., Any]:
        """(server, sums, round, key) → (server, pseudo-gradient), compiled once per phase."""
        if number not in self._receive:
            phase, cohort = self._phase(number), self._phase(number).cohort or self.cohort

            def receive(phase: Phase, server: Any, sums: Any, round_index: Any, key: Any) -> Any:
                return aggregation.receive(phase, server, sums, Context(round_index, key, self.clients, cohort))

            self._receive[number] = jax.jit(partial(receive, phase))
        return self._receive[number]


def _check_method(method: Method, clients: int, cohort: int) -> None:
    """Refuses what needs more than weighted sums of one exchange per phase."""
    sampling = method.sampling
    if sampling.needs_scores or sampling.scoring is not None or sampling.uploads is not None:
        raise ValueError(
            f"sampling {sampling.name!r} looks at losses or updates of single clients, and a Flower server sees sums "
            "only: use 'uniform', 'by_size', 'poisson' or 'cyclic'"
        )
    if (aggregator := method.upload.aggregator) is not None and aggregator.combine is not None:
        raise ValueError(
            f"aggregator {aggregator.name!r} needs the updates of clients one by one, and this server takes sums: "
            "leave it out"
        )
    if (compression := method.upload.compression) is not None and compression.encode is not None:
        raise ValueError(
            f"compression {compression.name!r} is not encoded in Flower's messages, so it would save nothing: leave it "
            "out"
        )
    if method.needs_all_clients and cohort < clients:
        raise ValueError(f"method {method.name!r} needs all {clients} clients in every round: leave cohort out")

"""Which node is which client, and what the server knows of it: its examples and weights, asked for once."""

import logging
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedtrue.algorithm.interface import METHOD, OBJECTIVE, UNIFORM
from fedtrue.flower.wire import CONFIG, ERROR, REPLY, WEIGHT

LOG = logging.getLogger("flwr")
SECONDS_BETWEEN_LOOKS = 1.0
QUERY_SECONDS = 120.0  # a node that starts its app for the first time is slow


class KnownClient(NamedTuple):
    """What a node has said of its client."""

    node: int
    examples: float  # or what the task counts in their place: the size by which clients are drawn
    weights: dict[str, float]  # METHOD, OBJECTIVE; not normalised


class Directory:
    """The clients of the federation by their number, as far as their nodes have been seen."""

    def __init__(self, clients: int):
        self.clients = clients  # in the federation
        self.known: dict[int, KnownClient] = {}
        self._refused = set[int]()  # nodes with which nothing can be done

    def wait(self, grid: Grid, at_least: int, seconds: float) -> None:
        """Until all clients are known, or for so many seconds; then `at_least` of them must be."""
        end = time.monotonic() + seconds
        self.look(grid)
        while len(self.known) < self.clients and time.monotonic() < end:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            self.look(grid)
        missing = sorted(set(range(self.clients)) - set(self.known))
        if len(self.known) < at_least:
            raise ValueError(
                f"{len(self.known)} of {self.clients} clients are connected after {seconds:g} s, and min_replies is "
                f"{at_least}: start SuperNodes with --node-config partition-id={missing[0]} and so on"
            )
        if missing:
            LOG.warning("fedtrue: clients %s are not connected: training starts without them", missing)

    def look(self, grid: Grid) -> set[int]:
        """Asks the nodes that have not been asked; the nodes that are online."""
        online = set(grid.get_node_ids())
        self._refused &= online  # a node that was started anew is asked again
        asked = online - {client.node for client in self.known.values()} - self._refused
        query = RecordDict({CONFIG: ConfigRecord()})
        messages = [Message(query, node, MessageType.QUERY, group_id="query") for node in sorted(asked)]
        for reply in grid.send_and_receive(messages, timeout=QUERY_SECONDS) if messages else []:
            try:
                self._add(reply, online)
            except (ValueError, TypeError) as error:
                self._refused.add(reply.metadata.src_node_id)
                LOG.warning("fedtrue: node %s takes no part: %s", reply.metadata.src_node_id, error)
        return online

    def _add(self, reply: Message, online: Iterable[int]) -> None:
        node = reply.metadata.src_node_id
        if reply.has_error():
            raise ValueError(
                f"its app fails in a query ({_first_line(reply.error.reason)}): use client_app, or ft.flower.answer in "
                "a function with @app.query()"
            )
        said: Any = reply.content.config_records.get(REPLY, {})
        if ERROR in said:
            raise ValueError(str(said[ERROR]))
        client, examples = int(said.get("client", -1)), float(said.get("examples", 0))
        weights = {name: float(said.get(WEIGHT + name, 0)) for name in (METHOD, OBJECTIVE)}
        if not 0 <= client < self.clients:
            raise ValueError(f"its partition-id is {client}, and the federation has clients 0 to {self.clients - 1}")
        if not examples > 0 or not all(np.isfinite(weight) and weight > 0 for weight in weights.values()):
            raise ValueError(f"client {client} has no data ({examples:g} examples, weight {weights[METHOD]:g})")
        if client in self.known and self.known[client].node in online:
            raise ValueError(
                f"client {client} is already at node {self.known[client].node}: give each its partition-id"
            )
        self.known[client] = KnownClient(node, examples, weights)

    def client_of(self, node: int) -> int | None:
        """The number of a node's client."""
        return next((number for number, client in self.known.items() if client.node == node), None)

    @property
    def sizes(self) -> np.ndarray:
        """Examples of every client; 1 for those that were never seen."""
        return np.asarray([self.known[i].examples if i in self.known else 1 for i in range(self.clients)])

    @property
    def objective_total(self) -> float:
        return sum(client.weights[OBJECTIVE] for client in self.known.values())

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """Of all clients, as in a `Federation`."""
        of = lambda name: np.asarray([client.weights[name] for client in self.known.values()])
        return {METHOD: of(METHOD), OBJECTIVE: of(OBJECTIVE) / self.objective_total, UNIFORM: np.ones(len(self.known))}


def _first_line(text: str | None) -> str:
    return (text or "no reason given").strip().splitlines()[-1]

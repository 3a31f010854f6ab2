"""What a simulation refuses of the parts between clients and server, once it knows what clients send."""

from typing import Any

import jax

from fedtrue.algorithm import linear
from fedtrue.algorithm.interface import OBJECTIVE, STATE
from fedtrue.algorithm.method import Method
from fedtrue.engine.capacity import exchanges
from fedtrue.tasks.task import Task


def check_upload_parts(task: Task, method: Method, cohort: int, held: int, free: int) -> None:
    """Refuses sums that would drift, noise without an account, and contributions that do not fit."""
    if not method.upload.names:
        return
    sent = exchanges(task, method)[-1].output.contributions
    _check_compression(method, sent)
    _check_aggregator(method, sent, cohort, held, free)
    check_privacy(method, sent)


def check_privacy(method: Method, sent: Any) -> None:
    """Refuses contributions that clipping or noise would spoil."""
    _check_clipping(method, sent)
    _check_noise(method, sent)


def _check_compression(method: Method, sent: Any) -> None:
    """A server that follows what clients keep by the mean of their updates would add up the errors of all rounds."""
    compression, parts = method.upload.compression, method.clients
    if compression is None or compression.encode is None or compression.feedback or parts is None:
        return
    accounted = any(each.weighting == OBJECTIVE for each in sent.values())
    if parts.rule.init_memory is not None and not accounted:
        raise ValueError(
            f"the server of {method.name} follows its clients' memory by their updates, so errors of compression "
            f"{compression.name!r} would add up: use one with error feedback, e.g. 'top_k' or 'sign'"
        )


def _check_aggregator(method: Method, sent: Any, cohort: int, held: int, free: int) -> None:
    aggregator = method.upload.aggregator
    if aggregator is None or aggregator.combine is None:
        return
    aggregator.check_cohort(cohort)
    if aggregator.by_coordinate and _has_matrix_maps(sent):
        raise ValueError(
            f"aggregator {aggregator.name!r} estimates every entry by itself, which is no inverse of a matrix trace: "
            "use aggregator 'krum', or correction 'none' or 'local'"
        )
    if held > free:
        raise ValueError(
            f"aggregator {aggregator.name!r} needs the updates of the whole cohort one by one: {held / 1e9:,.1f} GB do "
            f"not fit into the {free / 1e9:,.1f} GB that are free; use a smaller cohort"
        )


def _check_clipping(method: Method, sent: Any) -> None:
    """One factor for all that a client sends is a smaller weight only for what is averaged anew in every round."""
    privacy, parts = method.upload.privacy, method.clients
    if privacy is None:
        return
    if unknown := sorted(set(privacy.scales) - set(sent)):
        raise ValueError(f"privacy: clients send no {unknown[0]!r}: scales are for {', '.join(sent)}")
    if privacy.clip is None:
        return
    if states := [name for name, each in sent.items() if each.weighting == STATE]:
        raise ValueError(
            f"privacy would clip {states[0]!r}, a state that clients of {method.name} send whole: use a method whose "
            "clients send updates, e.g. fedopt with client_state 'restart', or fednova with a number as tau_eff"
        )
    keeps_account = any(each.weighting == OBJECTIVE for each in sent.values())
    if keeps_account or (parts is not None and parts.rule.init_memory is not None):
        raise ValueError(
            f"the server of {method.name} follows what its clients keep by what they send, so what clipping cuts off "
            "would be missing for good: use a method without control variates, and a correction without a table"
        )


def _check_noise(method: Method, sent: Any) -> None:
    if method.upload.privacy is not None and method.upload.privacy.noise > 0 and _has_matrix_maps(sent):
        raise ValueError(
            "noise leaves no inverse of a matrix trace: use correction 'none' or 'local', or a diagonal client "
            "optimizer, e.g. adam"
        )


def _has_matrix_maps(sent: Any) -> bool:
    values = [each.value for each in sent.values()]
    return any(map(linear.is_matrix_map, jax.tree.leaves(values, is_leaf=linear.is_matrix_map)))

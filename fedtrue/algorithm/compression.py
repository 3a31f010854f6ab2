"""Compression of what clients send: fewer entries, or fewer bits per entry.

top_k      the entries of largest magnitude                       error feedback
random_k   entries at random                                      error feedback, or unbiased
sign       one bit per entry, times the mean magnitude            error feedback
qsgd       stochastic rounding to s levels of the norm            unbiased
quantize   stochastic rounding to b bits of the largest entry     unbiased

With error feedback a client keeps what it has not sent and adds it to what it sends next:

    p = u + e      sent = C(p)      e' = p − sent

so everything is sent sooner or later. Each array is compressed by itself. What is said of it here is what the server
decodes; `bits` is the size of the message, and an array is sent as it is where that takes no more bits.

A contribution says by its role what may happen to it. A SCALE, such as 1/N, is a denominator: an entry of 0 that stands
for "not sent" would make a false ratio. It gets 8 bits per entry on a geometric grid, which keeps it positive. One with
the weighting OBJECTIVE keeps account of what clients store, so it is compressed with error feedback only.
"""

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm import linear
from fedtrue.algorithm.checks import check_float, check_int
from fedtrue.algorithm.client_update import all_finite
from fedtrue.algorithm.context import Context
from fedtrue.algorithm.interface import (
    EXACT,
    OBJECTIVE,
    SCALE,
    Broadcast,
    Client,
    ClientOutput,
    ClientWork,
    Contribution,
)
from fedtrue.spec import Part, accepts, named

SCALE_BITS = 8
NUMBER_BITS = 32  # of a norm or a bound that is sent besides
STREAM = 1  # of the random numbers that compression draws from a client's key
TINY = 1e-30  # a smaller positive entry of a scale is sent as this


@dataclass(frozen=True, eq=False, repr=False)
class Compression(Part):
    """How one array is compressed, as data."""

    encode: Callable[[Any, Any], Any] | None  # (key, vector) → the vector that the server decodes; None: as it is
    bits: Callable[[int, int], int]  # (entries, bits per entry) → bits of the message
    feedback: bool = False  # whether a client keeps what it has not sent


@named("compression")
def none() -> Compression:
    """Everything is sent as it is.

    Returns:
        A compression, for the option `compression` of a method; in a sweep, what others are compared with.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), compression="none")
    """
    return Compression(None, lambda entries, width: entries * width)


@named("compression")
def top_k(share: float = 0.01, feedback: bool = True) -> Compression:
    """The entries of largest magnitude of every array, with error feedback.

    Stich, Cordonnier and Jaggi 2018; Karimireddy et al. 2019. A message has k values and k indices of ⌈log₂ n⌉ bits.

    Args:
        share: of an array's entries that are sent, k = max(1, round(share · n)).
        feedback: False: what is not sent is lost. The fixed point is then another one.

    Returns:
        A compression, for the option `compression` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.adagrad(0.1), compression=ft.compression.top_k(share=0.01))
    """
    check_float("top_k: share", share, high=1.0, open_low=True)

    def encode(key: Any, x: Any) -> Any:
        largest = jax.lax.top_k(jnp.abs(x), _kept(share, x.size))[1]
        return jnp.zeros_like(x).at[largest].set(x[largest])

    def bits(entries: int, width: int) -> int:
        return _kept(share, entries) * (width + math.ceil(math.log2(entries)))

    return Compression(encode, bits, feedback)


@named("compression")
def random_k(share: float = 0.01, feedback: bool = True) -> Compression:
    """Entries of every array at random, with error feedback or scaled to be unbiased.

    The server draws the same indices from the key of the round and the client, so a message has k values alone.

    Args:
        share: of an array's entries that are sent, k = max(1, round(share · n)).
        feedback: False: what is not sent is lost, and what is sent is multiplied by n/k, so that it is unbiased.

    Returns:
        A compression, for the option `compression` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), compression="random_k(share=0.1)")
    """
    check_float("random_k: share", share, high=1.0, open_low=True)

    def encode(key: Any, x: Any) -> Any:
        k = _kept(share, x.size)
        chosen = jax.lax.top_k(jax.random.bits(key, x.shape, jnp.uint32), k)[1]
        factor = 1.0 if feedback else x.size / k
        return jnp.zeros_like(x).at[chosen].set(factor * x[chosen])

    return Compression(encode, lambda entries, width: _kept(share, entries) * width, feedback)


@named("compression")
def sign() -> Compression:
    """One bit per entry, times the mean magnitude of the array, with error feedback.

    Seide et al. 2014; Karimireddy et al. 2019. sent = (‖p‖₁/n) sign(p).

    Returns:
        A compression, for the option `compression` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), compression="sign")
    """

    def encode(key: Any, x: Any) -> Any:
        return jnp.mean(jnp.abs(x)) * jnp.where(x < 0, -1, 1).astype(x.dtype)

    return Compression(encode, lambda entries, width: entries + NUMBER_BITS, feedback=True)


@named("compression")
def qsgd(levels: int = 16) -> Compression:
    """Stochastic rounding to `levels` multiples of the array's norm; unbiased.

    Alistarh et al. 2017: ‖x‖₂ sign(x) ξ/s, where ξ is |x| s/‖x‖₂ rounded up or down at random. A message has a sign and
    ⌈log₂(s + 1)⌉ bits per entry; the authors' Elias code, whose length depends on the values, is not used.

    Args:
        levels: s.

    Returns:
        A compression, for the option `compression` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), compression="qsgd(levels=4)")
    """
    check_int("qsgd: levels", levels, low=1)
    width = 1 + math.ceil(math.log2(levels + 1))

    def encode(key: Any, x: Any) -> Any:
        return stochastic_levels(key, x, _norm(x), levels)

    return Compression(encode, lambda entries, _: entries * width + NUMBER_BITS)


@named("compression")
def quantize(bits: int = 8) -> Compression:
    """Stochastic rounding to `bits` bits per entry, between ± the array's largest entry; unbiased.

    Args:
        bits: per entry, the sign included; 2^(bits−1) − 1 levels on each side of 0.

    Returns:
        A compression, for the option `compression` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.adagrad(0.1), compression="quantize(bits=4)")
    """
    check_int("quantize: bits", bits, low=2, high=16)
    levels = 2 ** (bits - 1) - 1

    def encode(key: Any, x: Any) -> Any:
        return stochastic_levels(key, x, jnp.max(jnp.abs(x)), levels)

    return Compression(encode, lambda entries, _: entries * bits + NUMBER_BITS)


def stochastic_levels(key: Any, x: Any, bound: Any, levels: int) -> Any:
    """bound · sign(x) ξ/s, ξ = |x| s/bound rounded up with the probability of its fraction: E = x."""
    step = bound / levels
    level = jnp.abs(x) / jnp.where(step > 0, step, 1)
    rounded = jnp.floor(level + jax.random.uniform(key, x.shape, x.dtype))
    return (jnp.sign(x) * step * rounded).astype(x.dtype)


def _norm(x: Any) -> Any:
    """‖x‖₂ of entries whose squares would overflow too."""
    shrink = jnp.where(jnp.max(jnp.abs(x)) > 1e15, 1e-20, 1.0).astype(x.dtype)
    return jnp.linalg.norm(x * shrink) / shrink


def geometric_levels(key: Any, x: Any) -> Any:
    """Positive entries, each rounded to a level above or below; unbiased. An entry of 0 stays 0, no other becomes 0.

    255 levels a_j = a_0 rʲ from the smallest positive entry to the largest. x between a_j and a_{j+1} becomes a_{j+1}
    with probability (x − a_j)/(a_{j+1} − a_j).
    """
    levels = 2**SCALE_BITS - 1
    x = jnp.where(x > 0, jnp.maximum(x, TINY), 0)
    smallest, largest = jnp.min(jnp.where(x > 0, x, jnp.inf)), jnp.max(x)
    ratio = (jnp.log(largest) - jnp.log(smallest)) / (levels - 1)  # ln r; NaN or 0 where there is one value at most
    varies = ratio > 0
    ratio = jnp.where(varies, ratio, 1)
    below = jnp.floor(jnp.log(jnp.where(x > 0, x, smallest) / smallest) / ratio)
    low, high = smallest * jnp.exp(below * ratio), smallest * jnp.exp((below + 1) * ratio)
    up = jax.random.uniform(key, x.shape, x.dtype) < (x - low) / (high - low)
    rounded = jnp.minimum(jnp.where(up, high, low), largest)
    return jnp.where((x > 0) & varies, rounded, x).astype(x.dtype)


def _kept(share: float, entries: int) -> int:
    return max(1, round(share * entries))


class Residual(NamedTuple):
    """The state or the memory of client work, and what was not sent."""

    work: Any
    unsent: Any  # name of a contribution → tree


def compressed_work(work: ClientWork, compression: Compression) -> ClientWork:
    """The same client, whose contributions are compressed; with feedback it keeps what it has not sent."""

    def contributions_of(broadcast: Broadcast, memory: Any) -> dict[str, Contribution]:
        client, context = Client(jnp.int32(0), jnp.int32(1), *jnp.ones(2)), Context(0, jax.random.key(0), 1, 1)
        finish = lambda: work.finish(broadcast, work.start(broadcast, client, memory), client, context)
        return jax.eval_shape(finish).contributions

    def init_memory(broadcast: Broadcast, client: Any) -> Residual:
        memory = work.init_memory(broadcast, client)
        zeros = lambda tree: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), tree)
        sent = contributions_of(broadcast, memory)
        unsent = {name: zeros(each.value) for name, each in sent.items() if may_be_sparse(compression, each)}
        return Residual(memory, unsent)

    def start(broadcast: Broadcast, client: Client, memory: Residual) -> Residual:
        return Residual(work.start(broadcast, client, memory.work), memory.unsent)

    def step(broadcast: Broadcast, state: Residual, batch: Any, learning_rate: Any) -> Residual:
        return state._replace(work=work.step(broadcast, state.work, batch, learning_rate))

    def finish(broadcast: Broadcast, state: Residual, client: Client, context: Context) -> ClientOutput:
        output = work.finish(broadcast, state.work, client, context)
        key = client_stream(context, client, STREAM)
        whole = {name: jax.tree.map(jnp.add, output.contributions[name].value, e) for name, e in state.unsent.items()}
        contributions = {
            name: replace(each, value=whole.get(name, each.value)) for name, each in output.contributions.items()
        }
        sent = {name: compressed(compression, name_key(key, name), each) for name, each in contributions.items()}
        unsent = {name: jax.tree.map(jnp.subtract, p, sent[name].value) for name, p in whole.items()}
        return output._replace(
            contributions=sent, memory=Residual(output.memory, unsent), finite=output.finite & all_finite(sent)
        )

    def finish_unbiased(broadcast: Broadcast, state: Any, client: Client, context: Context) -> ClientOutput:
        output = work.finish(broadcast, state, client, context)
        key = client_stream(context, client, STREAM)
        sent = {name: compressed(compression, name_key(key, name), each) for name, each in output.contributions.items()}
        return output._replace(contributions=sent, finite=output.finite & all_finite(sent))

    if not compression.feedback:
        return work._replace(finish=finish_unbiased)
    return ClientWork(init_memory, start, step, finish)


def may_be_sparse(compression: Compression, contribution: Contribution) -> bool:
    """Whether it is compressed as the compression says, so that something of it may stay unsent."""
    accounted = contribution.weighting == OBJECTIVE and not compression.feedback
    return contribution.role not in (SCALE, EXACT) and not accounted


def compressed(compression: Compression, key: Any, contribution: Contribution) -> Contribution:
    """What the server decodes, leaf by leaf."""
    leaves, tree = jax.tree.flatten(contribution.value, is_leaf=linear.is_matrix_map)
    ways = [_way(compression, contribution, leaf) for leaf in leaves]
    keys = [jax.random.fold_in(key, number) for number in range(len(leaves))]
    sent = [leaf if way is None else way.apply(k, leaf) for k, leaf, way in zip(keys, leaves, ways)]
    return replace(contribution, value=jax.tree.unflatten(tree, sent))


def message_bits(compression: Compression, contribution: Contribution) -> int:
    """Of a contribution, or of its shapes."""
    leaves = jax.tree.leaves(contribution.value, is_leaf=linear.is_matrix_map)
    ways = [_way(compression, contribution, leaf) for leaf in leaves]
    return sum(_bits(leaf) if way is None else way.bits for leaf, way in zip(leaves, ways))


class _Way(NamedTuple):
    """How an array is sent."""

    encode: Callable[[Any, Any], Any]
    bits: int

    def apply(self, key: Any, leaf: Any) -> Any:
        return self.encode(key, leaf.reshape(-1)).reshape(leaf.shape)


def _way(compression: Compression, contribution: Contribution, leaf: Any) -> _Way | None:
    """None: as it is. So are matrices, since a matrix of rounded entries may not be positive."""
    if linear.is_matrix_map(leaf) or not jnp.issubdtype(leaf.dtype, jnp.floating) or leaf.size == 0:
        return None
    width = 8 * leaf.dtype.itemsize
    if compression.encode is None:
        return None
    if contribution.role == SCALE:
        way = _Way(geometric_levels, leaf.size * SCALE_BITS + 2 * NUMBER_BITS)
    elif may_be_sparse(compression, contribution):
        way = _Way(compression.encode, compression.bits(leaf.size, width))
    else:
        return None
    return way if way.bits < leaf.size * width else None


def _bits(leaf: Any) -> int:
    return sum(8 * array.size * array.dtype.itemsize for array in jax.tree.leaves(leaf))


def message_bytes(compression: Compression | None, contributions: Mapping[str, Contribution]) -> int:
    """Of all that a client sends; None: as it is."""
    if compression is None:
        return sum(_bits(each.value) for each in contributions.values()) // 8
    return math.ceil(sum(message_bits(compression, each) for each in contributions.values()) / 8)


def client_stream(context: Context, client: Client, stream: int) -> Any:
    """The key of what a client draws in a phase, besides its batches; `stream` tells the purposes apart."""
    return jax.random.fold_in(jax.random.fold_in(context.key, client.index), stream)


def name_key(key: Any, name: str) -> Any:
    """By the name itself: other contributions beside it change nothing."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


accepts("compression", Compression, '"top_k(share=0.01)"')

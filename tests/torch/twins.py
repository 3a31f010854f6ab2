"""Clients in JAX that step as optimizers of PyTorch which `ft.client` does not have, written from their equations."""

from dataclasses import replace

import jax
import jax.numpy as jnp

import fedtrue as ft
from fedtrue.algorithm import linear
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.move import Move, momentum_move, plain_move

each = jax.tree.map


def zeros(params):
    return each(jnp.zeros_like, params)


def adaptive(rate, init, precondition, move=None, **options):
    """A client optimizer without the parts that a single round does not need."""
    move = move or plain_move()
    optimizer = ClientOptimizer(
        lambda round_index: rate, lambda params, client: init(params), precondition, None, move, adaptive=True
    )
    return replace(optimizer, **options)


def dampened(rate, beta, dampening):
    """SGD's momentum, whose first step is not dampened."""
    later = momentum_move(beta, dampening)

    def step(g, p, state, memory):
        momentum, is_first = memory
        if is_first:
            return linear.apply(p, g), (g, False)
        step, momentum = later.step(g, p, state, momentum)
        return step, (momentum, False)

    return replace(ft.client.sgd(rate), move=Move(lambda params: (zeros(params), True), step))


def rmsprop(rate, alpha, epsilon, centered, momentum):
    """v' = α v + (1−α) g²,  ḡ' = α ḡ + (1−α) g,  P = 1/(√(v' − ḡ'²) + ε),  b' = μ b + P g,  step = b'."""

    def precondition(g, state):
        v = each(lambda v, g: alpha * v + (1 - alpha) * g**2, state["v"], g)
        mean = each(lambda m, g: alpha * m + (1 - alpha) * g, state["mean"], g)
        spread = each(lambda v, m: v - m**2, v, mean) if centered else v
        return each(lambda s: 1 / (jnp.sqrt(s) + epsilon), spread), {"v": v, "mean": mean}

    def step(g, p, state, b):
        b = each(lambda b, step: momentum * b + step, b, linear.apply(p, g))
        return b, b

    return adaptive(rate, lambda x: {"v": zeros(x), "mean": zeros(x)}, precondition, Move(zeros, step))


def adadelta(rate, rho, epsilon):
    """P = √(u + ε)/√(v' + ε),  u' = ρ u + (1−ρ) (P g)²."""

    def precondition(g, state):
        v = each(lambda v, g: rho * v + (1 - rho) * g**2, state["v"], g)
        p = each(lambda u, v: jnp.sqrt(u + epsilon) / jnp.sqrt(v + epsilon), state["u"], v)
        return p, {"v": v, "u": each(lambda u, p, g: rho * u + (1 - rho) * (p * g) ** 2, state["u"], p, g)}

    return adaptive(rate, lambda x: {"v": zeros(x), "u": zeros(x)}, precondition)


def counted(weight):
    """A move m' = β₁ m + (1−β₁) g whose step is P weight(k, g, m'), k counted from 1."""

    def with_beta(beta1):
        def step(g, p, state, memory):
            m, k = memory
            m, k = each(lambda m, g: beta1 * m + (1 - beta1) * g, m, g), k + 1
            return linear.apply(p, each(lambda g, m: weight(k, g, m), g, m)), (m, k)

        return Move(lambda params: (zeros(params), 0), step)

    return with_beta


def second_moment(beta2, preconditioner):
    """v' = β₂ v + (1−β₂) g²,  P = preconditioner(v', t)."""

    def precondition(g, state):
        v, t = each(lambda v, g: beta2 * v + (1 - beta2) * g**2, state["v"], g), state["t"] + 1
        return each(lambda v: preconditioner(v, t), v), {"v": v, "t": t}

    return (lambda x: {"v": zeros(x), "t": 0}), precondition


def nadam(rate, beta1, beta2, epsilon, momentum_decay, **options):
    """v̂ = v'/(1−β₂ᵗ),  μ_t = β₁ (1 − 0.96^{tψ}/2),  step = P̂ ((1−μ_t) g / (1−Πμ) + μ_{t+1} m' / (1−Πμ μ_{t+1}))."""
    mu = lambda t: beta1 * (1 - 0.5 * 0.96 ** (t * momentum_decay))

    def weight(t, g, m):
        product = 1.0
        for earlier in range(1, t + 1):
            product *= mu(earlier)
        return (1 - mu(t)) * g / (1 - product) + mu(t + 1) * m / (1 - product * mu(t + 1))

    init, precondition = second_moment(beta2, lambda v, t: 1 / (jnp.sqrt(v / (1 - beta2**t)) + epsilon))
    return adaptive(rate, init, precondition, counted(weight)(beta1), **options)


def radam(rate, beta1, beta2, epsilon):
    """ρ_t = ρ − 2t β₂ᵗ/(1−β₂ᵗ),  P = r_t √(1−β₂ᵗ)/(√v' + ε) if ρ_t > 5, else 1;  step = P m'/(1−β₁ᵗ)."""
    rho = 2 / (1 - beta2) - 1

    def preconditioner(v, t):
        rho_t = rho - 2 * t * beta2**t / (1 - beta2**t)
        r = jnp.sqrt(jnp.maximum((rho_t - 4) * (rho_t - 2) * rho / ((rho - 4) * (rho - 2) * rho_t), 0))
        return jnp.where(rho_t > 5, r * jnp.sqrt(1 - beta2**t) / (jnp.sqrt(v) + epsilon), 1.0)

    init, precondition = second_moment(beta2, preconditioner)
    return adaptive(rate, init, precondition, counted(lambda t, g, m: m / (1 - beta1**t))(beta1))


def adamax(rate, beta1, beta2, epsilon):
    """u' = max(β₂ u, |g| + ε),  P = 1/u',  step = P m'/(1−β₁ᵗ)."""

    def precondition(g, u):
        u = each(lambda u, g: jnp.maximum(beta2 * u, jnp.abs(g) + epsilon), u, g)
        return each(lambda u: 1 / u, u), u

    return adaptive(rate, zeros, precondition, counted(lambda t, g, m: m / (1 - beta1**t))(beta1))


def adafactor(rate, beta2_decay, epsilon, smallest_scale, d, **options):
    """V = r cᵀ / mean(r) of means r, c of g² over rows and columns; P = α/(η max(1, rms(g/√V)/d) √V), α = rms(x) η."""
    rms = lambda x: jnp.sqrt(jnp.mean(x**2))

    def averaged(state, g, t):
        """w v + (1−w) mean of g², of one axis or the other; vectors: of g² itself."""
        w = t**beta2_decay
        axes = (-1, -2) if g.ndim > 1 else (None,)
        means = [(g**2).mean(axis, keepdims=True) if axis else g**2 for axis in axes]
        return [(1 - w) * old + w * new for old, new in zip(state or [0.0] * len(axes), means)]

    def root(parts):
        if len(parts) == 1:
            return jnp.sqrt(jnp.maximum(parts[0], epsilon**2))
        row, column = parts
        return jnp.sqrt(jnp.maximum(row @ column / row.mean(-2, keepdims=True), epsilon**2))

    def precondition(g, state):
        t = state["t"] + 1
        parts = {name: averaged(state["parts"].get(name), leaf, t) for name, leaf in g.items()}
        p = {}
        for name, leaf in g.items():
            scale = jnp.maximum(smallest_scale, state["rms"][name]) * jnp.minimum(rate, t**-0.5) / rate
            p[name] = scale / jnp.maximum(1, rms(leaf / root(parts[name])) / d) / root(parts[name])
        return p, {"parts": parts, "t": t, "rms": state["rms"]}

    observe = lambda state, x, g, gradient_at: {**state, "rms": each(rms, x)}
    init = lambda x: {"parts": {}, "t": 0, "rms": each(rms, x)}
    return adaptive(rate, init, precondition, observe=observe, **options)

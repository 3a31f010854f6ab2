"""Algorithm 1 in plain NumPy, one client after another: the tests compare fedtrue with it. It does not import fedtrue.

python examples/pseudocode_twin.py
"""

import numpy as np

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-7
START = {"sgd": 0.0, "momentum": 0.0, "adagrad": 0.1, "adam": 0.0, "yogi": 1.0, "rmsprop": 0.0}  # initial accumulator c


def accumulate(name, v, g, beta2):
    if name == "adagrad":
        return v + g**2
    if name == "yogi":
        return v - (1 - beta2) * np.sign(v - g**2) * g**2
    return beta2 * v + (1 - beta2) * g**2


def local_steps(
    x, gradient, name, rate, steps, gamma, state, lagged=False, c=None, clip=np.inf, decay=0.0, within=lambda share: 1.0
):
    """The inner loop: returns x_i, both traces, the trace of the weight decay and the optimizer state."""
    adaptive, beta2 = name in ("adagrad", "adam", "yogi", "rmsprop"), 0.9 if name == "rmsprop" else BETA2
    beta1 = BETA1 if name in ("adam", "yogi", "momentum") else 0.0
    m, v, k, t, ones = state or (np.zeros_like(x), np.full_like(x, START[name] if c is None else c), 0, 0, 0.0)
    x, exact, paper, average, decayed = x.copy(), np.zeros_like(x), np.zeros_like(x), np.zeros_like(x), 0.0
    for step in range(steps):
        g, v_before, k, t = gradient(x), v, k + 1, t + 1
        clipped = min(1.0, clip / np.linalg.norm(g))
        s = within(step / steps)
        kept = 1 - gamma * rate * s * decay
        g = clipped * g
        v = accumulate(name, v, g, beta2)
        p = 1 / (np.sqrt(v_before if lagged else v) + EPSILON) if adaptive else np.ones_like(x)
        m = beta1 * m + (1 - beta1) * g
        scale = np.sqrt(1 - beta2**t) / (1 - beta1**k) if name in ("adam", "yogi") else 1.0
        x = kept * x - gamma * rate * s * scale * p * m
        ones = beta1 * ones + (1 - beta1) * clipped  # the same momentum, applied to ones
        exact = kept * exact + gamma * s * scale * p * ones
        average = beta1 * average + (1 - beta1) * clipped * p
        paper = kept * paper + gamma * s * average
        decayed = kept * decayed + gamma * s
    return x, {"exact": exact, "paper": paper}, decayed, (m, v, k, t, ones)


def reciprocal(n):
    return np.divide(1.0, n, out=np.zeros_like(n), where=n != 0)


def federate(x, gradients, weights, name, rate, steps, gammas, rounds, correction, trace, client_state, **options):
    """The outer loop with server SGD at rate 1; `gradients[i](x)` is the gradient of client i, `weights` sum to 1."""
    states, decay = [None] * len(gradients), options.get("decay", 0.0)
    for _ in range(rounds):
        update, inverse_trace, mean_v, mean_t, mean_decayed, mean_inverse = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i, w in enumerate(weights):
            x_i, n, decayed, states[i] = local_steps(
                x, gradients[i], name, rate, steps[i], gammas[i], states[i], **options
            )
            inverse = reciprocal(n[trace])
            moved = x - x_i - rate * decay * decayed * x  # by the gradients; the rest is weight decay
            update = update + w * moved * (1.0 if correction == "none" else inverse)
            mean_decayed, mean_inverse = mean_decayed + w * decayed, mean_inverse + w / decayed
            inverse_trace, mean_v, mean_t = (
                inverse_trace + w * inverse,
                mean_v + w * states[i][1],
                mean_t + w * states[i][3],
            )
        if client_state == "restart":
            states = [None] * len(gradients)
        if client_state == "sync":
            states = [(np.zeros_like(x), mean_v, 0, mean_t, 0.0)] * len(gradients)
        taken_off = rate * decay * {"none": mean_decayed, "local": 1.0, "joint": 1 / mean_inverse}[correction]
        x = x - (update * reciprocal(inverse_trace) if correction == "joint" else update) - taken_off * x
    return x


if __name__ == "__main__":
    hessians, minima = np.array([[1.0, 30.0], [20.0, 1.0]]), np.array([[2.0, 1.0], [-1.0, -2.0]])
    gradients = [lambda x, h=h, m=m: h * (x - m) for h, m in zip(hessians, minima)]
    minimiser = (hessians * minima).sum(0) / hessians.sum(0)
    rest = {"steps": [2, 30], "gammas": [1.0, 1.0], "rounds": 2000, "trace": "exact", "client_state": "restart"}
    for correction in ("none", "local", "joint"):
        x = federate(np.array([5.0, 5.0]), gradients, [0.5, 0.5], "adagrad", 1e-2, correction=correction, **rest)
        print(f"client Adagrad, {correction:5s}: distance from the minimiser {np.linalg.norm(x - minimiser):.4f}")

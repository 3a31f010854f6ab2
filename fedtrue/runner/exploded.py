"""Rounds in which client updates exploded: everything stays finite, but the server may not recover.

One client whose gradients explode makes the mean update thousands of times as long as usual. A server like Adagrad
keeps that in its sums of squares, so the run ends with a bad accuracy and the status `finished`.

The first exploded round is the first whose pseudo-gradient is longer than

    50 × that of 90 % of the run's rounds   and   10 × that of every round before it,

and every later one that is longer than 50 × that of 90 % is counted too. The second condition is for runs that
converge: their norms fall, so the first are large compared with most. Round 0 has no round before it and is never the
first. Why 90 % and not the median: clients of very different sizes give rounds of very different norms.

On 609 kept runs with one line per round (`experiments/records`, when the rule was chosen):

- The largest norm is above 10, 30, 100, 1,000 times the median in 223, 147, 88, 28 runs. Most of these trained well:
  quadratics that converge (up to 2e14), MNIST's first round (117), tag prediction (up to 676, in every seed).
- The two conditions name 19 runs, of Shakespeare and of words of Stack Exchange, and no quadratic, MNIST, CIFAR-10 or
  tag prediction. For 10 of them there are seeds with the same settings that are not named: each of the 10 is less
  accurate than every one of those. The other 9 are three settings of which all seeds are named.
- 50 was chosen on these same runs. The next that fulfil the second condition have 46 times the norm of 90 % of the
  rounds (Stack Exchange, the least accurate of three seeds) and 30 (tag prediction, whose norms always vary).
- Missed: explosions in round 0 (AdaAlter on quadratics, two seeds with a loss of 1e7 and more), and runs in which more
  than a tenth of the rounds explode (server SGD, client Adagrad with `local` on Stack Exchange, norms up to 1e18).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedtrue.spec import Spec, part_options

MIN_TIMES_USUAL = 50.0
MIN_TIMES_BEFORE = 10.0
USUAL = 0.9  # the share of rounds that are not longer than the usual norm
CLIP = "clip gradients (--set client.clip_norm=1) or "
LOWER_RATE = "lower the client learning rate"


class Exploded(NamedTuple):
    """What `summary.json` says about a run's exploded rounds."""

    rounds: int  # how many
    first: int  # the number of the first, as in metrics.jsonl
    norm: float  # the largest ‖pseudo-gradient‖; infinite if it overflowed
    usual: float  # 90 % of the rounds are not above it


def find_exploded(rounds: Mapping[str, np.ndarray]) -> Exploded | None:
    """The exploded rounds of a run; None if it has none, or if a line of its records stands for several rounds."""
    if "pseudo_gradient_norm" not in rounds or not np.array_equal(rounds["round"], np.arange(len(rounds["round"]))):
        return None
    trained = rounds["clients"] > 0  # without a client, the norm of the mean says nothing
    numbers, norms = rounds["round"][trained], rounds["pseudo_gradient_norm"][trained].astype(float)
    norms = np.where(np.isfinite(norms), norms, np.inf)  # the mean is finite; its norm, a sum of squares, overflowed
    if len(norms) < 2:
        return None
    usual = float(np.quantile(norms, USUAL, method="higher"))
    is_long = norms > MIN_TIMES_USUAL * usual
    jumps = norms[1:] > MIN_TIMES_BEFORE * np.maximum.accumulate(norms)[:-1]
    starts = 1 + np.flatnonzero(is_long[1:] & jumps)
    if usual == 0 or not len(starts):
        return None
    count = int(is_long[starts[0] :].sum())
    return Exploded(count, int(numbers[starts[0]]), float(norms[starts[0] :].max()), usual)


def exploded_text(exploded: Mapping[str, Any], method: Spec | None) -> str:
    """One line for the user: what happened, and what helps. `exploded`: as in the summary; `method`: the run's."""
    others = f" and {exploded['rounds'] - 1} more" if exploded["rounds"] > 1 else ""
    norm = np.inf if exploded["norm"] is None else exploded["norm"]  # JSON has no infinity
    times = f"{_text(norm / exploded['usual'])} times as long as usual (norm {_text(norm)})"
    length = f"{'up to ' if others else ''}{times}" if np.isfinite(norm) else "so long that its norm overflowed"
    happened = f"the mean update was {length}, as client updates exploded"
    return f"round {exploded['first']}{others}: {happened}: {_cure(method)}"


def _text(number: float) -> str:
    """15,830, 24.75 and 2.983e+10."""
    return f"{number:,.0f}" if 100 <= number < 1e9 else f"{number:.4g}"


def _cure(method: Spec | None) -> str:
    """Clipping only if the method's client optimizer can clip and does not do so yet."""
    if method is not None:
        client = part_options(method).get("client")
        if client is None or "clip_norm" in part_options(client):
            return LOWER_RATE
    return CLIP + LOWER_RATE

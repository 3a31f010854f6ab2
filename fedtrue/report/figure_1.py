"""The paper's Figure 1, drawn anew: what client adaptivity does to the landscape, and what the corrections undo.

Three clients, one of them far off: with two of equal weight ∇F₁ = −∇F₂ at the minimum, both would have the same
preconditioner there, and Adagrad with equal local steps would not be biased at all.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm import client_optimizer as client
from fedtrue.algorithm import server_optimizer as server
from fedtrue.algorithm.method import Method, fedopt
from fedtrue.precision import float64
from fedtrue.tasks.quadratic import Quadratic, quadratic
from fedtrue.theory.fixed_point import measured_fixed_point
from fedtrue.theory.operator import pseudo_gradient, round_operator

LOCAL_STEPS = 5
SGD_RATE = 0.009  # close to the best FedAvg can do: the clients' largest curvature is 200, from 0.01 on it diverges
ADAGRAD_RATE = 0.3
DECAY_ROUNDS, DECAY = (200, 400), 0.2
ROUNDS = 600
COLOURS = ("#4477AA", "#CC3311", "#009988", "#EE7733")  # Paul Tol's, distinct for colour-blind readers
INK, PAPER, STAR, DOT = "#222222", "#FFFFFF", "#FF9F1C", "#2DC653"


class Curve(NamedTuple):
    """A method of the figure: its name there, the method at a client rate, that rate, and how it is drawn."""

    name: str
    at: Callable[[Any], Method]
    learning_rate: float
    style: str = "-"
    server: str = ""  # said in the legend where it is not plain averaging


METHODS = (
    Curve("FedAvg", lambda rate: fedopt(client.sgd(rate), correction="none"), SGD_RATE),
    Curve("local Adagrad", lambda rate: fedopt(client.adagrad(rate), correction="none"), ADAGRAD_RATE),
    Curve(
        "local Adagrad + local correction",
        lambda rate: fedopt(client.adagrad(rate), server.adagrad(1.0), correction="local"),
        ADAGRAD_RATE,
        style="--",
        server=" (server Adagrad)",
    ),
    Curve("local Adagrad + joint correction", lambda rate: fedopt(client.adagrad(rate)), ADAGRAD_RATE),
)


def problem() -> Quadratic:
    """Ill-conditioned (about 1 : 375) so that adaptivity pays, one client far from the other two."""
    return quadratic(
        hessians=[[0.4, 200.0], [0.3, 150.0], [0.5, 100.0]],
        minima=[[-2.0, -0.5], [-1.0, -1.0], [6.0, 2.0]],
        start=[8.0, 4.0],
    )


def landscape(path: str | Path | None, resolution: int = 161) -> dict[str, Any]:
    """Figure 1a, at the once-decayed rates: where each method stands still; with a path, ‖x − A(x)‖ drawn."""
    task = problem()
    methods = {curve.name: curve.at(DECAY * curve.learning_rate) for curve in METHODS}
    still = {name: measured_fixed_point(task, method, LOCAL_STEPS).params for name, method in methods.items()}
    if path is not None:
        across, up = np.linspace(-4.5, 8.5, resolution), np.linspace(-3.2, 3.2, resolution)
        grid = np.stack(np.meshgrid(across, up), axis=-1)
        panels = {name: {"norm": _norms(task, methods[name], grid), "fixed_point": still[name]} for name in methods}
        _draw_landscape(path, across, up, panels, task)
    rows = [{"method": name, "numbers": _place(point, task.minimiser)} for name, point in still.items()]
    return {"minimiser": task.minimiser.tolist(), "rows": rows}


def _place(fixed_point: np.ndarray, minimiser: np.ndarray) -> dict[str, float]:
    away = float(np.linalg.norm(fixed_point - minimiser))
    return {"x1": float(fixed_point[0]), "x2": float(fixed_point[1]), "distance from the minimum": away}


def _norms(task: Quadratic, method: Method, grid: np.ndarray) -> np.ndarray:
    """The pseudo-gradient's length is ‖x − A(x)‖ at server rate 1."""
    with float64():
        points = jnp.asarray(grid.reshape(-1, 2))
        values = jax.jit(jax.vmap(pseudo_gradient(task, method, LOCAL_STEPS)))(points)
        return np.linalg.norm(np.asarray(values), axis=1).reshape(grid.shape[:2])


def curves(path: str | Path | None, rounds: int = ROUNDS) -> dict[str, Any]:
    """Figure 1b: distance to the minimiser by round, the client rate decayed at rounds 200 and 400."""
    task = problem()
    distances = {}
    for curve in METHODS:
        points = _trajectory(task, curve.at(_decayed(curve.learning_rate)), rounds)
        distances[curve.name] = np.linalg.norm(points - task.minimiser, axis=1)
    if path is not None:
        _draw_curves(path, distances)
    shown = sorted({min(r, rounds) for r in (50, *DECAY_ROUNDS, ROUNDS)})
    return {
        "decay_rounds": list(DECAY_ROUNDS),
        "distances": {name: values.tolist() for name, values in distances.items()},
        "rows": [
            {"method": name, "numbers": {f"after {r} rounds": float(values[r]) for r in shown}}
            for name, values in distances.items()
        ],
    }


def _decayed(learning_rate: float) -> Callable[[Any], Any]:
    """η, then η/5 from round 200, η/25 from round 400."""
    return lambda round_index: (
        learning_rate * DECAY ** sum((round_index >= decay_round).astype(jnp.float64) for decay_round in DECAY_ROUNDS)
    )


def _trajectory(task: Quadratic, method: Method, rounds: int) -> np.ndarray:
    """The server's weights before round 0 and after every round."""
    with float64():
        operate = round_operator(task, method, LOCAL_STEPS)

        def body(state: Any, round_index: Any) -> tuple[Any, Any]:
            state = operate(state, 0, round_index)
            return state, state.params

        first = method.init(jnp.asarray(task.start))
        later = jax.jit(lambda state: jax.lax.scan(body, state, jnp.arange(rounds))[1])(first)
        return np.concatenate([task.start[None], np.asarray(later)])


def _style() -> Any:
    """Readable at README width, on a solid background so that a dark page does not swallow the axes."""
    text = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK)
    solid = {"figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER}
    return {**text, **solid, "font.size": 11, "axes.titlesize": 12, "font.family": "DejaVu Sans"}


def _ranks(values: np.ndarray) -> np.ndarray:
    """The share of the picture with smaller values: the same contrast in every panel, whatever its scale."""
    return values.ravel().argsort().argsort().reshape(values.shape) / values.size


def _draw_landscape(path: str | Path, across: Any, up: Any, panels: dict[str, Any], task: Quadratic) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with rc_context(_style()):
        figure = Figure(figsize=(9, 7.4), dpi=150, layout="constrained")
        axes = figure.subplots(2, 2, sharex=True, sharey=True)
        for axis, (name, panel) in zip(axes.flat, panels.items()):
            image = axis.contourf(across, up, _ranks(panel["norm"]), levels=np.linspace(0, 1, 21), cmap="viridis")
            away = float(np.linalg.norm(panel["fixed_point"] - task.minimiser))
            axis.plot(*task.minima.T, "x", color="white", markersize=7, markeredgewidth=1.6)
            axis.plot(*task.minimiser, "*", color=STAR, markersize=20, markeredgecolor="white", markeredgewidth=1)
            axis.plot(*panel["fixed_point"], "o", color=DOT, markersize=8, markeredgecolor="white", markeredgewidth=1)
            axis.set_title(f"{name}\nends {away:.2f} from the minimum")
        figure.supxlabel("$x_1$ (curvature 0.3 to 0.5)", fontsize=11)
        figure.supylabel("$x_2$ (curvature 100 to 200)", fontsize=11)
        bar = figure.colorbar(image, ax=axes, shrink=0.85, ticks=[0, 0.25, 0.5, 0.75, 1])
        bar.ax.set_yticklabels(["0 %", "25 %", "50 %", "75 %", "100 %"])
        bar.set_label(r"share of the picture with smaller $\|x-A(x)\|$")
        marks = [
            Line2D([], [], marker="*", color=STAR, markersize=15, linestyle="", label="global minimum"),
            Line2D([], [], marker="o", color=DOT, markersize=9, linestyle="", label="where the method ends"),
            Line2D([], [], marker="x", color="#888888", markersize=8, linestyle="", label="the clients' own minima"),
        ]
        figure.legend(handles=marks, loc="outside upper center", ncols=3, frameon=False)
        figure.savefig(path)


def _draw_curves(path: str | Path, distances: dict[str, np.ndarray]) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_style()):
        figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
        axis = figure.subplots()
        for colour, curve in zip(COLOURS, METHODS):
            label = curve.name + curve.server
            axis.semilogy(distances[curve.name], curve.style, color=colour, linewidth=2.2, label=label)
        for decay_round in DECAY_ROUNDS:
            axis.axvline(decay_round, color="#999999", linewidth=1, linestyle=":")
        axis.annotate(
            "client rate ÷ 5", (DECAY_ROUNDS[0], axis.get_ylim()[1]), (6, -14), textcoords="offset points", fontsize=10
        )
        axis.set(xlabel="round", ylabel="distance to the global minimum", xlim=(0, len(distances[METHODS[0].name]) - 1))
        axis.set_title("Adaptive clients are fast; corrected, they also arrive", loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#DDDDDD", linewidth=0.7)
        axis.legend(frameon=False, loc="lower left")
        figure.savefig(path)

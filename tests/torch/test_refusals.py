"""What cannot be traced is refused at once, with the reason and the cure."""

import copy
import subprocess
import sys

import pytest

import fedtrue as ft
from tests.torch.clients import RATE, copy_of, network, torch, train

RULES = ft.torch.rules.RULES
REFUSED = {
    "LBFGS": "dense matrix.*use torch.optim.Adam or SGD",
    "Rprop": "signs of gradients only.*use torch.optim.RMSprop",
    "Muon": "matrix per weight matrix.*use ft.client.muon, or torch.optim.AdamW",
    "SparseAdam": "momentum of a row.*use torch.optim.Adagrad",
}


def build(name, **options):
    weights = [torch.nn.Parameter(torch.ones(2, 2))]  # Muon takes matrices only
    return getattr(torch.optim, name)(weights, **{"lr": RATE, **options})


def test_every_optimizer_of_pytorch_is_traced_or_refused():
    optimizers = {
        name for name, value in vars(torch.optim).items() if isinstance(value, type) and name not in ("Optimizer",)
    }
    assert optimizers <= {known.__name__ for known in RULES} | set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_an_optimizer_that_has_no_diagonal_trace_is_refused_with_its_reason(name):
    if not hasattr(torch.optim, name):
        pytest.skip(f"this PyTorch has no {name}")
    with pytest.raises(ValueError, match=rf"{name} cannot be traced: .*{REFUSED[name]}.*no trace is needed"):
        ft.torch.trace(build(name))


class HalvedAdam(torch.optim.Adam):
    """Steps half as far as Adam, which nobody can know by its name."""


class Signs(torch.optim.Optimizer):
    """x ← x − η P g, with P = 1/(mean of |g| so far)."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                state.setdefault("sizes", []).append(param.grad.abs())
                state["mean"] = torch.stack(state["sizes"]).mean(0)
                param -= group["lr"] * param.grad / state["mean"]


def test_a_class_that_is_not_known_is_refused_until_it_is_registered(monkeypatch):
    params = list(network().parameters())
    with pytest.raises(ValueError, match=r"HalvedAdam has no rule.*ft.torch.register\(HalvedAdam, Adam\)"):
        ft.torch.trace(HalvedAdam(params, lr=RATE))
    with pytest.raises(ValueError, match=r"Signs has no rule.*ft.torch.register\(Signs, ft.torch.Rule\(…\)\)"):
        ft.torch.trace(Signs(params, lr=RATE))
    for known in (HalvedAdam, Signs):
        monkeypatch.setitem(RULES, known, None)
    ft.torch.register(HalvedAdam, torch.optim.Adam)
    assert RULES[HalvedAdam] is RULES[torch.optim.Adam]
    with pytest.raises(ValueError, match="a class of optimizers"):
        ft.torch.register(HalvedAdam(params, lr=RATE), torch.optim.Adam)


def test_an_optimizer_of_ones_own_is_traced_by_its_rule(monkeypatch):
    """Under the constant gradient ±2, Δ/N = η g."""
    monkeypatch.setitem(RULES, Signs, None)
    ft.torch.register(
        Signs, ft.torch.Rule(preconditioner=lambda group, stepped: [1 / s.state["mean"] for s in stepped])
    )
    model = torch.nn.Linear(2, 1, bias=False)
    start, optimizer = copy_of(model), Signs(model.parameters(), lr=0.1)
    trace = ft.torch.trace(optimizer, "local")
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.tensor([[2.0, -2.0]])).sum().backward()
        optimizer.step()
    assert trace.update(model, start)["update"]["weight"].tolist() == [[pytest.approx(0.2), pytest.approx(-0.2)]]


def stepped(name, **options):
    optimizer = build(name, **options)
    optimizer.param_groups[0]["params"][0].grad = torch.ones(2, 2)
    optimizer.step()
    return optimizer


@pytest.mark.parametrize("name, options", [("SGD", {"momentum": 0.9}), ("Adam", {}), ("Adagrad", {})])
def test_an_optimizer_that_has_stepped_is_refused(name, options):
    with pytest.raises(ValueError, match=f"this {name} has stepped already.*anew in every round"):
        ft.torch.trace(stepped(name, **options))


def test_steps_that_the_hooks_have_not_seen_are_found():
    model = network()
    start, optimizer = copy_of(model), torch.optim.Adam(model.parameters(), lr=RATE)
    trace = ft.torch.trace(optimizer)
    train(model, optimizer, steps=2)
    optimizer.state[model[0].bias]["step"] += 1  # as a replayed CUDA graph would
    with pytest.raises(RuntimeError, match="has taken 3 steps, and its trace has seen 2"):
        trace.update(model, start)


@pytest.mark.parametrize(
    "name, options, trace_options, reason",
    [
        ("Adam", {}, {"correction": "joint(report=mean_gradient)"}, "arbitrarily large for this Adam: use 'moments'"),
        ("AdamW", {}, {"correction": "moments"}, "no decoupled weight decay: set weight_decay=0 in this AdamW"),
        ("ASGD", {}, {"correction": "moments"}, "set lambd=0 in this ASGD"),
        ("Adam", {}, {"correction": "joint(table=true)"}, "leave table out"),
        ("Adam", {}, {"correction": "jiont"}, "did you mean 'joint'"),
        ("Adam", {}, {"trace": "paper"}, "choose one of: first_gradient, exact"),
        ("Adam", {"lr": 0.0}, {}, "pass learning_rate="),
        ("Adam", {}, {"learning_rate": -1.0}, "learning_rate must be a finite number above 0"),
    ],
)
def test_options_that_do_not_go_together_are_refused(name, options, trace_options, reason):
    with pytest.raises(ValueError, match=reason):
        ft.torch.trace(build(name, **options), **trace_options)


def test_complex_weights_are_refused():
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))])
    with pytest.raises(ValueError, match="complex parameters"):
        ft.torch.trace(optimizer)


def test_a_start_that_cannot_be_right_is_refused():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    trace, start = ft.torch.trace(optimizer), copy_of(model)
    with pytest.raises(ValueError, match=r"the model's own memory.*clone"):
        trace.update(model, model.state_dict())
    with pytest.raises(ValueError, match="the model's own memory"):
        trace.update(model, {name: weight.numpy() for name, weight in model.state_dict().items()})
    with pytest.raises(ValueError, match=r"start has no '0\.weight'"):
        trace.update(model, {})
    with pytest.raises(ValueError, match=r"shape \(1,\), the model's parameter \(5,\)"):
        trace.update(model, start | {"0.bias": torch.zeros(1)})
    with pytest.raises(ValueError, match="4 of the optimizer's 4 parameters are not in this model"):
        trace.update(network(), start)


def test_a_start_may_be_a_model_or_arrays():
    model = network()
    starts = [copy.deepcopy(model), {name: weight.numpy().copy() for name, weight in model.state_dict().items()}]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    trace = ft.torch.trace(optimizer, "none")
    train(model, optimizer, steps=2)
    one, other = (trace.update(model, start)["update"]["0.bias"] for start in starts)
    assert (one == other).all() and (one != 0).all()


def test_importing_fedtrue_does_not_import_pytorch():
    program = "import fedtrue, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=300).returncode == 0


def test_without_pytorch_the_error_names_the_cure():
    program = "import sys; sys.modules['torch'] = None\nimport fedtrue\nfedtrue.torch"
    done = subprocess.run([sys.executable, "-c", program], timeout=300, capture_output=True, text=True)
    assert "ModuleNotFoundError: ft.torch needs PyTorch: pip install 'fedtrue[torch]'" in done.stderr

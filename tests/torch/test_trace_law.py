"""The trace is what the steps make of ones: under a constant gradient g, Δ / N = η g, whatever a loop does."""

import math
from functools import partial

import numpy as np
import pytest

import fedtrue as ft
from tests.torch.clients import RATE, copy_of, network, torch, train
from tests.torch.test_equals_jax import CASES

G = {"weight": np.array([[0.4, -2.0, 1.0], [0.03, 0.5, -0.1]]), "bias": np.array([-1.5, 0.2])}
BUILD = {name: entry.build for name, entry in CASES.items() if not entry.decay}
FEW = ("SGD, Nesterov", "SGD, dampening", "Adagrad, rate decay", "RMSprop, momentum", "AdamW", "NAdam, decoupled")


def linear(dtype=torch.float64):
    torch.manual_seed(2)
    return torch.nn.Linear(3, 2).to(dtype)


def loss_of(model):
    """Σ g x: its gradient is G everywhere."""
    return sum((torch.as_tensor(G[name], dtype=x.dtype) * x).sum() for name, x in model.named_parameters())


class Loop:
    """A client with a constant gradient; the tests write its loop."""

    def __init__(self, build, dtype=torch.float64, correction="local", **options):
        self.model = linear(dtype)
        self.start, self.optimizer = copy_of(self.model), build(self.model.parameters())
        self.trace = ft.torch.trace(self.optimizer, correction, **options)

    def backward(self, scale=1.0):
        (scale * loss_of(self.model)).backward()

    def step(self):
        self.optimizer.zero_grad()
        self.backward()
        self.optimizer.step()

    def reported(self):
        return self.trace.update(self.model, self.start)["update"]


def assert_reports(loop, factor=1.0, rtol=1e-6):
    for name, value in loop.reported().items():
        np.testing.assert_allclose(value, factor * loop.trace.learning_rate * G[name], rtol=rtol, err_msg=name)


@pytest.mark.parametrize("name", BUILD)
def test_a_constant_gradient_is_reported_as_it_is(name):
    loop = Loop(BUILD[name])
    for _ in range(7):
        loop.step()
    assert_reports(loop)


@pytest.mark.parametrize("name", FEW)
def test_weights_in_bfloat16_have_a_trace_in_float32(name):
    """Δ itself has the 8 bits of the weights."""
    loop = Loop(BUILD[name], torch.bfloat16, learning_rate=RATE)
    for _ in range(50):
        loop.step()
    assert all(value.dtype == np.float32 for value in loop.reported().values())
    assert np.sign(loop.reported()["weight"]).tolist() == np.sign(G["weight"]).tolist()


# --- learning rates -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FEW)
def test_schedules_within_the_round_are_in_the_trace(name):
    loop = Loop(BUILD[name])
    scheduler = torch.optim.lr_scheduler.LambdaLR(loop.optimizer, lambda k: (k + 1) / (k + 3))  # a third at first
    assert loop.trace.learning_rate == RATE
    for _ in range(6):
        loop.step()
        scheduler.step()
    assert_reports(loop)


def test_the_rate_before_a_warm_up_is_the_one_that_the_trace_is_relative_to():
    def build(params):
        optimizer = torch.optim.Adam(params, lr=RATE)
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: k / 3)
        return optimizer

    loop = Loop(build)
    assert loop.optimizer.param_groups[0]["lr"] == 0 and loop.trace.learning_rate == RATE


@pytest.mark.parametrize("name", ["SGD, momentum", "RMSprop, momentum", "Adam", "AdamW", "NAdam", "Adamax"])
def test_a_schedule_that_changes_the_momentum_too_is_in_the_trace(name):
    loop = Loop(BUILD[name], learning_rate=RATE)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(loop.optimizer, max_lr=4 * RATE, total_steps=9)
    for _ in range(8):
        loop.step()
        scheduler.step()
    assert_reports(loop)


@pytest.mark.parametrize("name", FEW)
def test_groups_with_rates_of_their_own_enter_relative_to_the_first(name):
    def build(params):
        weight, bias = params
        optimizer = BUILD[name]([{"params": [bias]}, {"params": [weight]}])
        optimizer.param_groups[1]["lr"] = 5 * RATE
        if "weight_decay" in optimizer.param_groups[1]:
            optimizer.param_groups[1]["weight_decay"] = 0.0
        return optimizer

    loop = Loop(build)
    assert loop.trace.learning_rate == RATE
    for _ in range(6):
        loop.step()
    assert_reports(loop)


def test_a_rate_that_is_a_tensor_is_a_number_for_the_trace():
    loop = Loop(lambda params: torch.optim.Adam(params, lr=torch.tensor(RATE, dtype=torch.float64)))
    for _ in range(3):
        loop.step()
    assert_reports(loop)


def test_clients_with_other_rates_report_relative_to_the_common_one():
    """The client's own rate is 3 η: its trace is three times as long, and it reports η g as all do."""
    loop = Loop(lambda params: torch.optim.Adagrad(params, lr=3 * RATE), learning_rate=RATE)
    for _ in range(3):
        loop.step()
    assert_reports(loop)
    assert loop.trace.learning_rate == RATE


# --- gradients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FEW)
def test_a_closure_and_accumulated_gradients_change_nothing(name):
    loop = Loop(BUILD[name])

    def closure():
        loop.optimizer.zero_grad()
        for _ in range(4):
            loop.backward(0.25)
        return loss_of(loop.model)

    for _ in range(5):
        loop.optimizer.step(closure)
    assert_reports(loop)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("clip", ["norm", "value", "both"])
def test_clipping_by_the_trace_reports_the_gradient_before_it(name, clip):
    loop = Loop(BUILD[name])
    for k in range(6):
        loop.optimizer.zero_grad()
        loop.backward()
        if clip in ("norm", "both"):
            norm = loop.trace.clip_grad_norm_(loop.model.parameters(), 0.5 + k)  # clipped at first, then not
            assert float(norm) == pytest.approx(math.sqrt(sum((g**2).sum() for g in G.values())))
        if clip in ("value", "both"):
            loop.trace.clip_grad_value_(loop.model.parameters(), 0.3 + k / 4)
        loop.optimizer.step()
    assert_reports(loop)


@pytest.mark.parametrize("name", FEW)
def test_after_clipping_by_pytorch_itself_the_clipped_gradient_is_reported(name):
    loop = Loop(BUILD[name])
    for _ in range(4):
        loop.optimizer.zero_grad()
        loop.backward()
        norm = torch.nn.utils.clip_grad_norm_(loop.model.parameters(), 0.5)
        loop.optimizer.step()
    assert_reports(loop, factor=0.5 / (float(norm) + 1e-6))


def without_the_bias(loop):
    """A loss that the bias is not in: its gradient is 0, which PyTorch has as None."""
    return (torch.as_tensor(G["weight"]) * loop.model.weight).sum()


@pytest.mark.parametrize("name", ["SGD", "SGD, momentum", "Adagrad", "Adam", "AdamW", "RMSprop, momentum"])
def test_steps_without_a_gradient_count_as_gradients_of_zero(name):
    """The optimizer skips the bias in two of six steps: the mean of its gradients is 4/6 g."""
    loop = Loop(BUILD[name])
    for k in range(6):
        loop.optimizer.zero_grad()
        (without_the_bias(loop) if k in (0, 3) else loss_of(loop.model)).backward()
        loop.optimizer.step()
    reported = loop.reported()
    np.testing.assert_allclose(reported["weight"], RATE * G["weight"], rtol=1e-6)
    np.testing.assert_allclose(reported["bias"], 4 / 6 * RATE * G["bias"], rtol=1e-6)


def test_it_does_not_matter_whether_zero_grad_sets_gradients_to_none_or_to_zero():
    loops = [Loop(BUILD["SGD"]) for _ in range(2)]
    for loop, set_to_none in zip(loops, (True, False)):
        for k in range(6):
            loop.optimizer.zero_grad(set_to_none)
            (without_the_bias(loop) if k in (2, 3) else loss_of(loop.model)).backward()
            loop.optimizer.step()
    np.testing.assert_allclose(*(loop.reported()["bias"] for loop in loops), rtol=1e-12)


def test_the_exact_trace_counts_the_steps_that_were_taken():
    loop = Loop(BUILD["Adam"], trace="exact")
    for k in range(6):
        loop.optimizer.zero_grad()
        (loss_of(loop.model) if k % 2 else without_the_bias(loop)).backward()
        loop.optimizer.step()
    assert_reports(loop)


def test_a_frozen_parameter_does_not_count_and_one_that_never_steps_reports_zero():
    """The bias is frozen for three of six steps, by requires_grad; a second client's for all of them."""
    for thaw in (3, 99):
        loop = Loop(BUILD["Adam"], correction="joint")
        loop.model.bias.requires_grad_(False)
        for k in range(6):
            if k == thaw:
                loop.model.bias.requires_grad_(True)
            loop.step()
        sent = loop.trace.update(loop.model, loop.start)
        is_trained = thaw < 6
        np.testing.assert_allclose(sent["update"]["bias"], is_trained * RATE * G["bias"], rtol=1e-6)
        assert (sent["inverse_trace"]["bias"] > 0).tolist() == [is_trained] * 2
        np.testing.assert_allclose(sent["update"]["weight"], RATE * G["weight"], rtol=1e-6)


def test_a_group_that_is_added_during_the_round_counts_from_then_on():
    loop = Loop(lambda params: torch.optim.Adam(list(params)[:1], lr=RATE))
    for k in range(6):
        if k == 4:
            loop.optimizer.add_param_group({"params": [loop.model.bias], "lr": RATE / 2})
            loop.model.bias.grad = None
        loop.step()
    assert_reports(loop)


def test_no_step_reports_zero():
    loop = Loop(BUILD["Adam"], correction="joint")
    sent = loop.trace.update(loop.model, loop.start)
    assert all((leaf == 0).all() for part in sent.values() for leaf in part.values())
    assert sent["inverse_trace"]["weight"].shape == (2, 3)


# --- variants of the optimizers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize(
    "optimizer", ["SGD", "ASGD", "Adagrad", "RMSprop", "Adadelta", "Adam", "AdamW", "NAdam", "RAdam", "Adamax"]
)
def test_both_implementations_of_an_optimizer_have_the_same_trace(optimizer, foreach):
    loop = Loop(lambda params: getattr(torch.optim, optimizer)(params, lr=RATE, foreach=foreach))
    for _ in range(7):
        loop.step()
    assert_reports(loop)


@pytest.mark.parametrize("optimizer", ["SGD", "Adagrad", "Adam", "AdamW"])
def test_fused_optimizers_have_the_same_trace(optimizer):
    loop = Loop(lambda params: getattr(torch.optim, optimizer)(params, lr=RATE, fused=True))
    for _ in range(4):
        loop.step()
    assert_reports(loop)


def test_maximize_reports_the_gradient_of_what_is_minimised():
    loop = Loop(lambda params: torch.optim.Adam(params, lr=RATE, maximize=True))
    for _ in range(4):
        loop.step()
    assert_reports(loop, factor=-1.0)


@pytest.mark.parametrize("fused", [False, True])
def test_steps_that_a_gradient_scaler_skips_do_not_count(fused):
    loop = Loop(lambda params: torch.optim.Adam(params, lr=RATE, fused=fused), torch.float32)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for k in range(5):
        loop.optimizer.zero_grad()
        scaler.scale(loss_of(loop.model) * (math.inf if k == 1 else 1.0)).backward()
        scaler.step(loop.optimizer)
        scaler.update()
    assert loop.trace.steps == 4
    assert_reports(loop, rtol=1e-4)


def step_at_once(optimizer, _):
    optimizer.step()
    optimizer.zero_grad()


def test_an_optimizer_that_steps_in_the_backward_pass_is_traced():
    model = linear()
    start, traces = copy_of(model), {}
    for name, param in model.named_parameters():
        optimizer = torch.optim.Adam([param], lr=RATE)
        traces[name] = ft.torch.trace(optimizer, "local")
        param.register_post_accumulate_grad_hook(partial(step_at_once, optimizer))
    for _ in range(4):
        loss_of(model).backward()
    for name, trace in traces.items():
        (reported,) = trace.update(model, start)["update"].items()
        assert reported[0] == name
        np.testing.assert_allclose(reported[1], RATE * G[name], rtol=1e-6)


def test_tied_weights_are_one_parameter_by_its_first_name():
    torch.manual_seed(0)
    model = torch.nn.ModuleDict(
        {"a": torch.nn.Linear(3, 3, bias=False), "b": torch.nn.Linear(3, 3, bias=False)}
    ).double()
    model["b"].weight = model["a"].weight
    start, optimizer = copy_of(model), torch.optim.Adam(model.parameters(), lr=RATE)
    trace = ft.torch.trace(optimizer, "local")
    for _ in range(4):
        optimizer.zero_grad()
        (model["a"].weight.sum() + 2 * model["b"].weight.sum()).backward()
        optimizer.step()
    assert list(start) == ["a.weight", "b.weight"]
    (found,) = trace.update(model, start)["update"].items()
    assert found[0] == "a.weight"
    np.testing.assert_allclose(found[1], np.full((3, 3), 3 * RATE), rtol=1e-6)  # the gradient is 1 + 2


# --- training does not change -------------------------------------------------------------------------------------


@pytest.mark.parametrize("correction", ["joint", "moments"])
@pytest.mark.parametrize("name", CASES)
def test_the_weights_are_bit_for_bit_those_without_a_trace(name, correction):
    weights = []
    for traced in (False, True):
        model = network(torch.float32)
        optimizer = CASES[name].build(model.parameters())
        if traced:
            try:
                ft.torch.trace(optimizer, correction)
            except ValueError as refused:
                assert "decoupled weight decay" in str(refused)
        train(model, optimizer)
        weights.append(copy_of(model))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])

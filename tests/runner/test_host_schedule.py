"""Dispatches end at the rounds after which the host evaluates or saves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtrue.runner import host_schedule
from fedtrue.runner.host_schedule import HostSchedule

EVERY = st.none() | st.integers(1, 12)


def ends_of_dispatches(found):
    """The rounds at which dispatches end, if each is as long as the schedule allows."""
    done, ends = 0, []
    while done < found.rounds:
        done = found.next(done)
        ends.append(done)
    return ends


@given(rounds=st.integers(1, 40), evaluate=EVERY, checkpoint=st.integers(1, 12))
def test_dispatches_end_at_every_multiple_and_at_the_last_round_and_nowhere_else(rounds, evaluate, checkpoint):
    due = {r for r in range(1, rounds + 1) if r % checkpoint == 0 or (evaluate and r % evaluate == 0) or r == rounds}
    assert ends_of_dispatches(HostSchedule(rounds, evaluate, checkpoint)) == sorted(due)


@given(done=st.integers(0, 50), evaluate=EVERY, checkpoint=st.integers(1, 12))
def test_the_next_end_is_in_the_future_wherever_a_resumed_run_begins(done, evaluate, checkpoint):
    assert done < HostSchedule(51, evaluate, checkpoint).next(done) <= 51


def test_evaluation_and_checkpoints_are_due_at_their_multiples_and_at_the_end():
    found = HostSchedule(10, evaluate_every=4, checkpoint_every=3)
    assert [r for r in range(1, 11) if found.evaluation_due(r)] == [4, 8, 10]
    assert [r for r in range(1, 11) if found.checkpoint_due(r)] == [3, 6, 9, 10]


def test_a_checkpoint_in_seconds_is_due_when_that_time_has_passed_since_the_last(monkeypatch):
    now = 100.0
    monkeypatch.setattr(host_schedule.time, "monotonic", lambda: now)
    found = HostSchedule(1000, checkpoint_every="2.5s")
    assert found.next(7) == 1000  # no round ends a dispatch
    due = []
    for done in range(1, 9):
        now += 1.0
        due.append(found.checkpoint_due(done))
    assert due == [False, False, True] * 2 + [False, False]  # 3 s ≥ 2.5 s, then counted from there


@pytest.mark.parametrize(
    "every, said",
    [
        ("60", "takes rounds (50) or seconds (\"60s\"), not '60'"),
        ("1m", "not '1m'"),
        ("-1s", "not '-1s'"),
        (0, "checkpoint_every must be an integer of at least 1, not 0"),
        (True, "checkpoint_every must be an integer of at least 1, not True"),
        (2.5, "checkpoint_every must be an integer of at least 1, not 2.5"),
    ],
)
def test_an_interval_that_is_neither_rounds_nor_seconds_is_refused(every, said):
    with pytest.raises(ValueError) as error:
        HostSchedule(10, checkpoint_every=every)
    assert said in str(error.value)

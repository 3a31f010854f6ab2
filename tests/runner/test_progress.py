"""Progress in a terminal, a notebook and a log file."""

import pytest
from rich.console import Console

import fedtrue as ft
from fedtrue.runner.progress import LogLines, NotebookLine, RoundsBar, display_for, progress_text, shown

METHOD = ft.fedopt(ft.client.sgd(0.01), correction="none")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_log_file_gets_the_first_line_after_ten_seconds_and_then_fewer_and_fewer():
    clock, lines = Clock(), []
    log = LogLines(86_400, lines.append, clock)
    for second in range(1, 86_401):  # a day, one round per second
        clock.now = second
        log(second, 86_400, {"loss": 0.5, "test.accuracy": 0.25})
    assert lines[0] == "round 10 of 86400, 1 rounds/s, 23:59:50 left: loss 0.5  test.accuracy 0.25"
    # every 10 s for 140 s, then each wait is 1/14 of the time so far: 14 + ln(86400/140) / ln(15/14) = 107
    assert len(lines) == pytest.approx(107, rel=0.1)


def test_a_short_run_writes_no_line():
    lines = []
    log = LogLines(5, lines.append, Clock())
    for done in range(1, 6):
        log(done, 5, {"loss": 0.5})
    assert lines == []


def test_the_first_dispatch_compiles_and_says_nothing_of_the_pace():
    assert progress_text(1, 9, None, {"loss": 2.0}) == "round 1 of 9: loss 2"


def test_the_display_fits_where_the_program_runs():
    assert isinstance(display_for(Console(force_terminal=True), 3), RoundsBar)
    assert isinstance(display_for(Console(force_terminal=False), 3), LogLines)
    assert isinstance(display_for(Console(force_jupyter=True), 3), NotebookLine)


def test_a_terminal_shows_the_round_the_loss_and_the_last_evaluation():
    bar = RoundsBar(10)
    bar(1, 10, {"loss": 0.5})
    bar(4, 10, {"loss": 0.25, "test.accuracy": 0.5})
    (task,) = bar.bar.tasks
    assert (task.completed, task.total) == (4, 10)
    assert task.fields["latest"] == "loss 0.25  test.accuracy 0.5"


def test_a_notebook_shows_one_line_that_is_replaced():
    pytest.importorskip("IPython", reason="needs the extra `test`")
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.instance()
    with capture_output() as captured, NotebookLine(10) as line:
        line(1, 10, {"loss": 0.5})
        line(10, 10, {"loss": 0.25})
    texts = [output.data["text/plain"] for output in captured.outputs]
    assert texts[:2] == ["compiling", "round 1 of 10: loss 0.5"]
    assert texts[2].startswith("round 10 of 10, ") and texts[2].endswith("left: loss 0.25")
    assert 'value="10" max="10"' in captured.outputs[-1].data["text/html"]
    assert [output.update for output in captured.outputs] == [False, True, True]


def test_a_progress_function_gets_the_last_evaluation_too():
    task = ft.tasks.synthetic_tags(clients=6, words=20, tags=4)
    calls = []
    ft.train(task, METHOD, rounds=4, cohort=2, lanes=1, evaluate_every=2, progress=lambda *call: calls.append(call))
    done, total, metrics = calls[-1]
    assert (done, total) == (4, 4)
    assert set(metrics) >= {"loss", "test.loss", "test.recall_at_5"}


def test_progress_that_is_neither_true_nor_a_function_is_refused():
    with pytest.raises(ValueError, match="progress takes True or a function"):
        shown("yes", 3)

"""The server's run folder: resumed after a crash, and read by the same commands as every run."""

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.runner.records import read_lines
from tests.flower.federations import grid_of, noisy_task, weights

SCAFFOLD = ft.methods.scaffold(ft.client.sgd(0.01))


class Killed(BaseException):
    """The server's process ends here."""


def grid_that_dies(grid, messages):
    """The grid, until the server has sent so many times."""
    send = grid.send_and_receive

    def until_killed(*arguments, **options):
        nonlocal messages
        messages -= 1
        if messages < 0:
            raise Killed
        return send(*arguments, **options)

    grid.send_and_receive = until_killed
    return grid


def test_a_server_that_was_killed_resumes_with_the_clients_memory(tmp_path):
    task = noisy_task(cohort=2)
    new_grid = lambda: grid_of(task, SCAFFOLD, memory=tmp_path / "nodes")
    with pytest.raises(Killed):  # in round 2: one query and two rounds have been sent
        ft.flower.Strategy(SCAFFOLD, task, out=tmp_path / "run").start(grid_that_dies(new_grid(), 3), num_rounds=5)
    strategy = ft.flower.Strategy(SCAFFOLD, task, out=tmp_path / "run")
    strategy.start(new_grid(), num_rounds=5)
    simulated = ft.train(task, SCAFFOLD, rounds=5)
    np.testing.assert_allclose(weights(strategy.result.params), weights(simulated.params), rtol=1e-5, atol=1e-6)
    assert [line["round"] for line in read_lines(tmp_path / "run" / "metrics.jsonl")] == [0, 1, 2, 3, 4]
    again = ft.flower.Strategy(SCAFFOLD, task, out=tmp_path / "run")
    again.start(grid_that_dies(new_grid(), 0), num_rounds=5)  # it has ended: nothing is sent
    np.testing.assert_array_equal(weights(again.result.params), weights(strategy.result.params))


def test_a_lost_memory_is_refused_and_not_taken_as_zero(tmp_path, caplog):
    task = noisy_task()
    ft.flower.Strategy(SCAFFOLD, task, out=tmp_path).start(grid_of(task, SCAFFOLD), num_rounds=1)
    strategy = ft.flower.Strategy(SCAFFOLD, task, out=tmp_path)
    strategy.start(grid_of(task, SCAFFOLD), num_rounds=2)  # new nodes, without a folder
    assert strategy.result.history["refused"].tolist() == [0, 3]
    assert "Flower has not kept what client 0 knew before" in caplog.text


def test_a_client_that_was_missing_in_its_first_round_begins_when_it_comes():
    task = noisy_task()
    grid = grid_of(task, SCAFFOLD)
    send, rounds = grid.send_and_receive, []

    def offline_at_first(messages, timeout):
        rounds.append(None)
        grid.offline = {2} if len(rounds) == 2 else set()  # the query, then round 0, in which client 1 is missing
        replies = send(messages, timeout=timeout)
        grid.offline = set()
        return replies

    grid.send_and_receive = offline_at_first
    strategy = ft.flower.Strategy(SCAFFOLD, task)
    strategy.start(grid, num_rounds=2)
    assert strategy.result.history["missing"].tolist() == [1, 0]
    assert strategy.result.history["clients"].tolist() == [2, 3]


def test_another_run_in_the_folder_is_refused(tmp_path):
    task, method = noisy_task(), ft.methods.fedavg(0.01)
    ft.flower.Strategy(method, task, out=tmp_path).start(grid_of(task, method), num_rounds=1)
    with pytest.raises(ValueError, match="holds another run \\(seed was 0, is 1"):
        ft.flower.Strategy(method, task, out=tmp_path, seed=1).start(grid_of(task, method), num_rounds=1)


def test_table_and_report_read_the_folder(tmp_path, capsys):
    task, method = noisy_task(), ft.fedopt(ft.client.adagrad(0.1))
    ft.flower.Strategy(method, task, out=tmp_path / "run").start(grid_of(task, method), num_rounds=2)
    assert (
        main(["table", str(tmp_path / "run")]) == 0 and "| run | 7." in capsys.readouterr().out
    )  # the mean loss of two rounds
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0
    assert ft.load_weights(tmp_path / "run")["w"].shape == (3,)


def test_joint_sends_twice_the_arrays_of_none_and_their_bytes_are_recorded():
    rng, numbers = np.random.default_rng(0), 10_000
    task = ft.tasks.from_arrays(
        [{"x": rng.normal(size=(1, numbers)).astype(np.float32)}] * 2,
        init=lambda key: {"w": np.zeros(numbers, np.float32)},
        loss=lambda params, example: ((params["w"] - example["x"]) ** 2).sum(),
    )
    up, down = {}, {}
    for correction in ("none", "joint"):
        method = ft.fedopt(ft.client.adagrad(0.1), correction=correction)
        strategy = ft.flower.Strategy(method, task)
        strategy.start(grid_of(task, method), num_rounds=1)
        up[correction], down[correction] = (strategy.result.history[name][0] for name in ("bytes_up", "bytes_down"))
    arrays = 2 * 4 * numbers  # two clients, float32
    assert arrays < up["none"] < arrays + 4000 and 2 * arrays < up["joint"] < 2 * arrays + 6000
    assert arrays < down["none"] < arrays + 6000

"""Panels of rates, and how many of their cells reach a threshold."""

from pytest import approx

from fedtrue.report.heat_map import cell_value, count_beyond, default_threshold, panels
from fedtrue.report.labels import group
from fedtrue.runner.records import find_runs, read_run
from tests.report.made_runs import ACCURACY, LOSS, write_run


def grid(folder, values, **settings):
    """A run a cell of {(server rate, client rate): accuracy}; None stands for one that diverged."""
    for (server, client), value in values.items():
        write_run(
            folder / f"{server}-{client}",
            [0.1 if value is None else value],
            status="diverged" if value is None else "finished",
            client={"name": "sgd", "learning_rate": client},
            server={"name": "sgd", "learning_rate": server},
            **settings,
        )
    return group([read_run(path) for path in find_runs([folder])])


def test_cells_stand_at_their_rates_and_are_counted_above_the_threshold(tmp_path):
    (panel,) = panels(grid(tmp_path, {(1.0, 0.1): 0.19, (1.0, 0.2): 0.20, (2.0, 0.1): 0.25, (2.0, 0.2): None}))
    assert (panel.client_rates, panel.server_rates) == ((0.1, 0.2), (1.0, 2.0))
    assert cell_value(panel.cells[2.0, 0.1], ACCURACY) == approx(0.25)
    assert cell_value(panel.cells[2.0, 0.2], ACCURACY) is None
    assert count_beyond(panel, ACCURACY, 0.2) == 2  # 0.20 itself and 0.25; the diverged one reached 0.1 before


def test_losses_count_below_the_threshold(tmp_path):
    (panel,) = panels(grid(tmp_path, {(s, c): 0.1 for s in (1.0, 2.0) for c in (0.1, 0.2)}))
    assert count_beyond(panel, LOSS, 3.0) == 4  # one round each, whose loss is 3 / (1 + 0)
    assert count_beyond(panel, LOSS, 2.9) == 0


def test_everything_else_that_differs_makes_panels_over_the_same_rates(made_runs):
    two = panels(group([read_run(path) for path in find_runs([made_runs["sweep"]])]))
    assert [panel.title for panel in two] == ["client adagrad", "client sgd"]
    assert [len(panel.cells) for panel in two] == [28, 28]
    assert two[0].client_rates == two[1].client_rates


def test_rates_of_one_kind_only_are_no_panel(tmp_path):
    assert panels(grid(tmp_path, {(1.0, 0.1): 0.2, (1.0, 0.2): 0.3})) == []


def test_the_default_threshold_is_three_quarters_of_the_way_to_the_best(tmp_path):
    found = panels(grid(tmp_path, {(1.0, 0.1): 0.1, (1.0, 0.2): 0.2, (2.0, 0.1): 0.5, (2.0, 0.2): 0.3}))
    assert default_threshold(found, ACCURACY) == approx(0.4)  # 0.1 + ¾ (0.5 − 0.1)


def test_the_default_threshold_lies_between_cells_however_close_they_are(tmp_path):
    near = {(1.0, 0.1): 0.881, (1.0, 0.2): 0.883, (2.0, 0.1): 0.889, (2.0, 0.2): 0.885}
    found = panels(grid(tmp_path / "near", near))
    assert default_threshold(found, ACCURACY) == approx(0.887)  # 0.881 + ¾ · 0.008, rounded to 0.001
    assert count_beyond(found[0], ACCURACY, 0.887) == 1
    same = panels(grid(tmp_path / "same", dict.fromkeys(near, 0.5)))
    assert count_beyond(same[0], ACCURACY, default_threshold(same, ACCURACY)) == 4


def test_for_losses_it_goes_by_ratios(tmp_path):
    for (server, client), loss in {(1.0, 0.1): 1.0, (1.0, 0.2): 16.0, (2.0, 0.1): 4.0, (2.0, 0.2): 2.0}.items():
        rates = {"client": {"name": "sgd", "learning_rate": client}, "server": {"name": "sgd", "learning_rate": server}}
        write_run(tmp_path / f"{server}-{client}", [0.1], loss=[loss], **rates)
    found = panels(group([read_run(path) for path in find_runs([tmp_path])]))
    assert default_threshold(found, LOSS) == approx(2.0)  # 16 · (1/16)^¾: three of the four halvings from 16 to 1

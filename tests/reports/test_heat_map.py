"""Heat-map panels, and how many of their cells reach a threshold."""

from pytest import approx

from fedtrue.reports.heat_map import cell_value, count_reached, default_threshold, heat_map_panels
from tests.reports.made_runs import ACCURACY, LOSS, read_groups, write_run


def grid(folder, values, **settings):
    """One run per cell of {(server rate, client rate): accuracy}; None for a diverged run."""
    for (server, client), value in values.items():
        write_run(
            folder / f"{server}-{client}",
            [0.1 if value is None else value],
            status="diverged" if value is None else "finished",
            client={"name": "sgd", "learning_rate": client},
            server={"name": "sgd", "learning_rate": server},
            **settings,
        )
    return read_groups(folder)


def test_cells_are_placed_by_their_rates_and_counted_above_the_threshold(tmp_path):
    (panel,) = heat_map_panels(grid(tmp_path, {(1.0, 0.1): 0.19, (1.0, 0.2): 0.20, (2.0, 0.1): 0.25, (2.0, 0.2): None}))
    assert (panel.client_rates, panel.server_rates) == ((0.1, 0.2), (1.0, 2.0))
    assert cell_value(panel.cells[2.0, 0.1], ACCURACY) == approx(0.25)
    assert cell_value(panel.cells[2.0, 0.2], ACCURACY) is None
    assert count_reached(panel, ACCURACY, 0.2) == 2  # 0.20 itself and 0.25; the diverged one reached 0.1 before


def test_losses_count_below_the_threshold(tmp_path):
    (panel,) = heat_map_panels(grid(tmp_path, {(s, c): 0.1 for s in (1.0, 2.0) for c in (0.1, 0.2)}))
    assert count_reached(panel, LOSS, 3.0) == 4  # one round each, whose loss is 3 / (1 + 0)
    assert count_reached(panel, LOSS, 2.9) == 0


def test_each_combination_of_the_other_settings_is_a_panel_over_the_same_rates(made_runs):
    two = heat_map_panels(read_groups(made_runs["sweep"]))
    assert [panel.title for panel in two] == ["client adagrad", "client sgd"]
    assert [len(panel.cells) for panel in two] == [28, 28]
    assert two[0].client_rates == two[1].client_rates


def test_rates_of_one_kind_only_are_no_panel(tmp_path):
    assert heat_map_panels(grid(tmp_path, {(1.0, 0.1): 0.2, (1.0, 0.2): 0.3})) == []


def test_the_default_threshold_is_three_quarters_of_the_way_to_the_best(tmp_path):
    panels = heat_map_panels(grid(tmp_path, {(1.0, 0.1): 0.1, (1.0, 0.2): 0.2, (2.0, 0.1): 0.5, (2.0, 0.2): 0.3}))
    assert default_threshold(panels, ACCURACY) == approx(0.4)  # 0.1 + ¾ (0.5 − 0.1)


def test_the_default_threshold_lies_between_cells_however_close_they_are(tmp_path):
    near = {(1.0, 0.1): 0.881, (1.0, 0.2): 0.883, (2.0, 0.1): 0.889, (2.0, 0.2): 0.885}
    panels = heat_map_panels(grid(tmp_path / "near", near))
    assert default_threshold(panels, ACCURACY) == approx(0.887)  # 0.881 + ¾ · 0.008, rounded to 0.001
    assert count_reached(panels[0], ACCURACY, 0.887) == 1
    same = heat_map_panels(grid(tmp_path / "same", dict.fromkeys(near, 0.5)))
    assert count_reached(same[0], ACCURACY, default_threshold(same, ACCURACY)) == 4


def test_the_default_threshold_of_losses_is_measured_by_ratios(tmp_path):
    for (server, client), loss in {(1.0, 0.1): 1.0, (1.0, 0.2): 16.0, (2.0, 0.1): 4.0, (2.0, 0.2): 2.0}.items():
        rates = {"client": {"name": "sgd", "learning_rate": client}, "server": {"name": "sgd", "learning_rate": server}}
        write_run(tmp_path / f"{server}-{client}", [0.1], loss=[loss], **rates)
    panels = heat_map_panels(read_groups(tmp_path))
    assert default_threshold(panels, LOSS) == approx(2.0)  # 16 · (1/16)^¾: three of the four halvings from 16 to 1

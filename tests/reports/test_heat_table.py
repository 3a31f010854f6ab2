"""Heat maps as tables."""

from fedtrue.reports.heat_map import heat_map_panels
from fedtrue.reports.heat_table import heat_markdown, heat_records
from tests.reports.made_runs import ACCURACY, LOSS, read_groups, write_run


def square(folder, values, *, clients=(0.1, 1.0), servers=(1.0, 2.0), name="sgd", **settings):
    """Four runs, {(server rate, client rate)} in reading order; None for a diverged run."""
    places = [(server, client) for server in servers for client in clients]
    for (server, client), value in zip(places, values):
        rates = {"client": {"name": name, "learning_rate": client}, "server": {"name": "sgd", "learning_rate": server}}
        status = "diverged" if value is None else "finished"
        write_run(folder / f"{name}-{server}-{client}", [value or 0.9], status=status, **rates, **settings)


def panels_of(folder):
    return heat_map_panels(read_groups(folder))


def test_a_panel_is_a_table_of_rates_with_bold_cells_that_reach_the_threshold_and_their_count(tmp_path):
    square(tmp_path, [0.1, 0.2, 0.3, None])
    assert heat_markdown(panels_of(tmp_path), ACCURACY, 0.2) == (
        "**shakespeare, client sgd, server sgd, joint correction**: "
        "test accuracy, the one evaluation in the only round (%)\n"
        "\n"
        "| server rate ↓ client rate → |       0.1 |         1 |\n"
        "| --------------------------: | --------: | --------: |\n"
        "|                           1 |     10.00 | **20.00** |\n"
        "|                           2 | **30.00** |  diverged |\n"
        "\n"
        "2 of 4 cells above 20 %\n"
    )


def test_a_panel_has_its_own_rates_only(tmp_path):
    square(tmp_path, [0.1] * 4, name="sgd")
    square(tmp_path, [0.1] * 4, name="adam", clients=(0.01, 0.1))
    adam, sgd = heat_records(panels_of(tmp_path), ACCURACY, 0.2)
    assert (adam["client_rates"], sgd["client_rates"]) == ([0.01, 0.1], [0.1, 1.0])


def test_json_has_one_row_per_server_rate_and_null_where_a_run_diverged_or_does_not_exist(tmp_path):
    square(tmp_path, [0.1, 0.2, 0.3, None])
    client, server = {"name": "sgd", "learning_rate": 5.0}, {"name": "sgd", "learning_rate": 2.0}
    write_run(tmp_path / "alone", [0.4], client=client, server=server)
    (panel,) = heat_records(panels_of(tmp_path), ACCURACY, 0.2)
    assert panel["values"] == [[0.1, 0.2, None], [0.3, None, 0.4]]
    assert (panel["count"], panel["cells"]) == (3, 5)


def test_a_cell_with_several_seeds_shows_their_mean_or_how_many_diverged(tmp_path):
    square(tmp_path / "0", [0.1, 0.2, 0.3, 0.4])
    square(tmp_path / "1", [0.1, 0.2, 0.3, None], seed=1)
    text = heat_markdown(panels_of(tmp_path), ACCURACY, 0.3)
    assert "| **30.00 ± 0.00** | 1 of 2 diverged |" in text


def test_losses_are_bold_below_the_threshold(tmp_path):
    square(tmp_path, [0.1] * 4)
    assert heat_markdown(panels_of(tmp_path), LOSS, 3.0).count("**3**") == 4  # the loss of a made round is 3


def test_bold_cells_are_those_counted_and_panels_follow_each_other(made_runs):
    two = panels_of(made_runs["sweep"])
    texts = heat_markdown(two, ACCURACY, 0.2).split("\n\n**")
    counts = [panel["count"] for panel in heat_records(two, ACCURACY, 0.2)]
    assert [text.count("**") // 2 for text in texts] == [counts[0] + 1, counts[1]]  # and the first's title


def test_a_setting_cannot_break_out_of_a_title(tmp_path):
    square(tmp_path / "a", [0.1] * 4, trace="a_*b*")
    square(tmp_path / "b", [0.1] * 4, trace="c")
    assert r"**a\_\*b\* trace**" in heat_markdown(panels_of(tmp_path), ACCURACY, 0.2)

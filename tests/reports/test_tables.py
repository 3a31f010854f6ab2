"""Tables: the texts of cells, and the characters that each format must escape."""

import csv
import io

import pytest
from pytest import approx

from fedtrue.reports.labels import group_runs
from fedtrue.reports.number_text import bytes_text, duration_text
from fedtrue.reports.table_formats import escape_latex, to_csv, to_latex, to_markdown, to_records
from fedtrue.reports.tables import build_table
from fedtrue.runner.records import read_run
from tests.reports.made_runs import read_groups, write_run


@pytest.fixture
def two_methods(tmp_path):
    """client SGD under seeds 0 and 1 (0.50 and 0.52; the reference is 50), client Adam under seed 0 (0.6)."""
    sgd, adam = ({"name": name, "learning_rate": 0.1} for name in ("sgd", "adam"))
    write_run(tmp_path / "a0", [0.50], label="client SGD", reference=50.0, client=sgd)
    write_run(tmp_path / "a1", [0.52], label="client SGD", reference=50.0, client=sgd, seed=1)
    write_run(tmp_path / "b0", [0.60], label="client Adam", client=adam)
    return read_groups(tmp_path)


def test_seeds_are_averaged_and_the_reference_is_shown_next_to_ours(two_methods):
    rows = to_records(build_table(two_methods))
    assert rows[0]["mean_last.test.accuracy"] == {
        "value": approx(0.51), "deviation": approx(0.02 / 2**0.5), "seeds": 2, "evaluations": 1, "rounds": 1
    }  # fmt: skip
    assert rows[0]["difference"] == approx(1.0)  # 100 · 0.51 − 50, in percent like the reference
    assert (rows[1]["reference"], rows[1]["difference"]) == (None, None)
    assert [column.key for column in build_table(two_methods).columns] == [
        *(
            "run",
            "client.name",
            "seed",
            "mean_last.test.accuracy",
            "final.test.accuracy",
            "best.test.accuracy",
            "reference",
            "difference",
        ),
        *("rounds_done", "bytes", "seconds"),
    ]


def test_the_reference_is_not_shown_next_to_another_metric(two_methods):
    assert "reference" not in [column.key for column in build_table(two_methods, "train.loss").columns]


def test_markdown_has_one_row_per_group(two_methods):
    assert to_markdown(build_table(two_methods, columns=["run", "client.name", "test.accuracy", "reference"])) == (
        "| run | client | test accuracy, the one evaluation in the only round (%) | reference |\n"
        "|---|---|--:|--:|\n"
        "| client SGD | sgd | 51.00 ± 1.41 | 50.00 |\n"
        "| client Adam | adam | 60.00 | – |\n"
    )


def test_csv_has_raw_numbers_and_the_deviation_in_a_separate_column(two_methods):
    rows = list(csv.DictReader(io.StringIO(to_csv(build_table(two_methods, columns=["run", "test.accuracy"])))))
    assert float(rows[0]["mean_last.test.accuracy"]) == approx(0.51)
    assert float(rows[0]["mean_last.test.accuracy.deviation"]) == approx(0.02 / 2**0.5)
    assert rows[1] == {"run": "client Adam", "mean_last.test.accuracy": "0.6", "mean_last.test.accuracy.deviation": ""}


def test_sorting_puts_the_best_first_and_empty_cells_last(two_methods):
    by = lambda key: [group.name for group in build_table(two_methods, sort=key).groups]
    assert by("test.accuracy") == ["client Adam", "client SGD"]
    assert by("reference") == ["client SGD", "client Adam"]
    assert by("client.name") == ["client Adam", "client SGD"]


@pytest.fixture
def rates(tmp_path):
    """Two methods with two rates each; Adam is better at its higher rate, SGD diverged there after a high value."""
    cells = {"0": ("sgd", 0.1, 0.3), "1": ("adam", 0.1, 0.4), "2": ("sgd", 1.0, 0.9), "3": ("adam", 1.0, 0.5)}
    for folder, (name, rate, value) in cells.items():
        status = "diverged" if value == 0.9 else "finished"
        write_run(tmp_path / folder, [value], status=status, client={"name": name, "learning_rate": rate})
    return read_groups(tmp_path)


def rows_of(table):
    return [[row["client.name"], row["client.learning_rate"]] for row in to_records(table)]


COLUMNS = ["client.name", "client.learning_rate"]


@pytest.mark.parametrize("sort", ["test.accuracy", "best.test.accuracy", "final.test.accuracy"])
def test_best_per_keeps_the_best_of_each_combination_in_the_order_of_the_runs(rates, sort):
    table = build_table(rates, columns=COLUMNS, sort=sort, best_per=["client.name"])
    assert rows_of(table) == [["sgd", 0.1], ["adam", 1.0]]  # SGD came first; its other rate diverged


def test_the_best_rows_may_be_ranked(rates):
    table = build_table(rates, columns=COLUMNS, sort="test.accuracy", best_per=["client.name"], ranked=True)
    assert rows_of(table) == [["adam", 1.0], ["sgd", 0.1]]  # 0.5 before 0.3


def test_best_per_keeps_the_lowest_loss(tmp_path):
    for rate, loss in ((0.1, 2.0), (1.0, 1.0)):
        client = {"name": "sgd", "learning_rate": rate}
        write_run(tmp_path / str(rate), [0.5], loss=[loss], client=client)
    groups = read_groups(tmp_path)
    assert rows_of(build_table(groups, columns=COLUMNS, sort="test.loss", best_per=["client.name"])) == [["sgd", 1.0]]


def test_best_per_keeps_a_group_with_a_diverged_seed_only_if_no_other_has_a_value(tmp_path):
    high, low = ({"name": "sgd", "learning_rate": rate} for rate in (1.0, 0.1))
    write_run(tmp_path / "high0", [0.9], client=high)
    write_run(tmp_path / "high1", [0.9], client=high, seed=1, status="diverged")
    winner = lambda: rows_of(
        build_table(
            read_groups(tmp_path),
            columns=COLUMNS,
            sort="test.accuracy",
            best_per=["client.name"],
        )
    )
    assert winner() == [["sgd", 1.0]]
    write_run(tmp_path / "low0", [None], client=low)
    assert winner() == [["sgd", 1.0]]
    write_run(tmp_path / "low1", [0.3], client=low, seed=1)
    assert winner() == [["sgd", 0.1]]


def test_best_per_keeps_every_group_if_all_combinations_differ(rates):
    assert build_table(rates, sort="test.accuracy", best_per=COLUMNS).groups == tuple(rates)


def test_the_best_of_several_rows_says_what_the_others_were_like(tmp_path):
    values = {0.01: 0.2, 0.1: 0.5, 1.0: 0.4, 10.0: None}  # the last one diverged
    for rate, value in values.items():
        status = "finished" if value else "diverged"
        write_run(tmp_path / f"sgd{rate}", [value], status=status, client={"name": "sgd", "learning_rate": rate})
        write_run(tmp_path / f"adam{rate}", [rate / 100], client={"name": "adam", "learning_rate": rate})
    table = build_table(
        read_groups(tmp_path),
        columns=["client.name", "tried", "median_tried", "at_edge"],
        sort="test.accuracy",
        best_per=["client.name"],
    )
    assert {row[0]: row[1:] for row in table.texts()} == {
        "sgd": ["4", "30.00", "–"],  # (0.2 + 0.4) / 2: one is better, one diverged; 0.1 has rates on both sides
        "adam": ["4", "0.55", "client"],  # (0.001 + 0.01) / 2; the best rate, 10, is the highest
    }


def test_a_median_that_diverged_is_empty(tmp_path):
    for rate, value in ((0.1, 0.5), (1.0, None), (10.0, None)):
        status = "finished" if value else "diverged"
        write_run(tmp_path / str(rate), [value], status=status, client={"name": "sgd", "learning_rate": rate})
    table = build_table(read_groups(tmp_path), columns=["median_tried"], sort="test.accuracy", best_per=["client.name"])
    assert table.values() == [[None]] and table.texts() == [["–"]]


def test_columns_of_the_best_rows_need_best_per(two_methods):
    with pytest.raises(ValueError, match="'at_edge' is of the best of several rows: add --best-per and --sort"):
        build_table(two_methods, columns=["at_edge"])


@pytest.mark.parametrize("sort", [None, "client.name", "rounds_done", "seconds"])
def test_best_per_needs_a_column_with_a_best_value(rates, sort):
    with pytest.raises(ValueError, match="--best-per needs --sort by a column with a best value"):
        build_table(rates, sort=sort, best_per=["client.name"])


def test_an_unknown_column_is_refused_with_the_nearest(two_methods):
    with pytest.raises(ValueError, match=r"did you mean 'client\.name'"):
        build_table(two_methods, columns=["client.nam"])


def test_diverged_and_running_runs_are_marked(made_runs):
    rows = to_records(build_table(read_groups(made_runs["methods"])))
    states = {row["run"]: (row["status"], row["mean_last.test.accuracy"] is None) for row in rows}
    assert states["client Adam, rate 10"] == ("diverged", True)
    assert states["client Yogi + joint correction"] == ("running", False)


def test_latex_escapes_every_special_character():
    assert escape_latex(r"a_b & 5% of $x$ #1 {y} ~ ^ \z") == (
        r"a\_b \& 5\% of \$x\$ \#1 \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )
    assert escape_latex("57.1 ± 0.2, −1, –") == r"57.1 $\pm$ 0.2, $-$1, --"


def test_latex_is_a_tabular_with_as_many_cells_as_columns(two_methods):
    lines = to_latex(build_table(two_methods, columns=["run", "test.accuracy"])).splitlines()
    assert lines[0] == r"\begin{tabular}{lr}"
    assert lines[4] == r"  client SGD & 51.00 $\pm$ 1.41 \\"
    assert lines[-1] == r"\end{tabular}"


def test_a_label_cannot_break_out_of_a_markdown_cell(tmp_path):
    run = write_run(tmp_path / "run", [0.5], label="a | b\n<script> *c*")
    text = to_markdown(build_table(group_runs([read_run(run)]), columns=["run"]))
    assert text.splitlines()[2] == r"| a \| b &lt;script&gt; \*c\* |"


def test_the_same_records_give_the_same_bytes(made_runs):
    write = lambda: to_csv(build_table(read_groups(made_runs["sweep"])))
    assert write() == write()


@pytest.mark.parametrize(
    "count, text", [(0, "–"), (999, "999 B"), (1000, "1 kB"), (1.234e9, "1.23 GB"), (5e15, "5 PB")]
)
def test_bytes_are_written_in_powers_of_a_thousand(count, text):
    assert bytes_text(count) == text


@pytest.mark.parametrize("seconds, text", [(1.234, "1.23 s"), (60, "1 min 0 s"), (3661, "1 h 1 min")])
def test_durations_are_written_in_seconds_minutes_and_hours(seconds, text):
    assert duration_text(seconds) == text


def test_the_commit_column_marks_uncommitted_changes_and_an_unknown_commit(tmp_path):
    for seed, commit in enumerate(["0123456789abcdef", "0123456789abcdef+", ""]):
        config = write_run(tmp_path / f"{seed}", [0.5], seed=seed) / "config.toml"
        config.write_text(config.read_text().replace("0000000", commit))
    (row,) = to_records(build_table(read_groups(tmp_path), columns=["commit"]))
    assert row["commit"] == "0123456; 0123456+; unknown"

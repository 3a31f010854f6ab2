"""Differences are taken run by run between equal seeds, and their interval is Student's."""

import pytest
from pytest import approx

from fedtrue.cli import main
from fedtrue.reports.difference_picture import BETTER, NOT_DECIDED, WORSE, draw_differences
from fedtrue.reports.differences import Difference
from fedtrue.reports.labels import group_runs
from fedtrue.reports.measures import Measure
from fedtrue.reports.number_text import difference_text
from fedtrue.reports.table_formats import to_csv, to_markdown, to_records
from fedtrue.reports.tables import build_table
from fedtrue.runner.records import find_runs, read_run
from tests.reports.made_runs import write_run

ACCURACIES = {"none": (0.50, 0.60, 0.40), "joint": (0.52, 0.61, 0.43)}


@pytest.fixture
def runs(tmp_path):
    """Two corrections with three seeds each; joint also with a worse rate, and with a seed that none does not have."""
    for correction, values in ACCURACIES.items():
        for seed, value in enumerate(values):
            write(tmp_path, correction, seed, 0.1, value)
    write(tmp_path, "joint", 7, 0.1, 0.9)
    for seed in range(3):
        write(tmp_path, "joint", seed, 0.2, 0.1)
    return tmp_path


def write(folder, correction, seed, rate, value, **options):
    client = {"name": "adam", "learning_rate": rate}
    write_run(
        folder / f"{correction}{seed}-{rate}-{len(options)}",
        [value],
        correction=correction,
        seed=seed,
        client=client,
        **options,
    )


def table(folder, over=("seed",), **how):
    return build_table(group_runs(map(read_run, find_runs([folder])), over), **how)


def test_the_interval_is_students_over_pairs_of_equal_seeds(runs):
    """Differences 0.02, 0.01, 0.03: mean 0.02, s = 0.01, t(2) = 4.303, so ± 4.303 · 0.01 / √3 = 0.0248."""
    shown = table(
        runs, columns=["correction", "test.accuracy"], best_per=["correction"], sort="test.accuracy",
        against={"correction": "none"},
    )  # fmt: skip
    rows = {row["correction"]: row["difference.mean_last.test.accuracy"] for row in to_records(shown)}
    assert rows["none"] is None
    assert rows["joint"] == {"value": approx(0.02), "interval": approx(0.0248, abs=1e-4), "pairs": 3}
    assert "| +2.00 ± 2.48 |" in to_markdown(shown)
    assert "difference.mean_last.test.accuracy.deviation" in to_csv(shown).splitlines()[0]


def test_without_best_rows_all_other_settings_must_be_equal(runs):
    shown = to_records(table(runs, columns=["correction", "final.test.accuracy"], against={"correction": "none"}))
    assert [row["difference.final.test.accuracy"] is not None for row in shown] == [
        True,
        False,
        False,
    ]  # joint 0.1, 0.2


def test_runs_are_paired_over_federations_too(tmp_path):
    """Seed 0 on two splits: −0.1 and +0.1, a mean of 0."""
    for split, (none, joint) in enumerate(((0.5, 0.4), (0.6, 0.7))):
        for correction, value in (("none", none), ("joint", joint)):
            write_run(
                tmp_path / f"{correction}{split}", [value], correction=correction, task_options={"split_seed": split}
            )
    over = ("seed", "task_options.split_seed")
    rows = to_records(table(tmp_path, over, columns=["correction", "test.accuracy"], against={"correction": "none"}))
    found = next(row["difference.mean_last.test.accuracy"] for row in rows if row["correction"] == "joint")
    assert found["value"] == approx(0.0) and found["pairs"] == 2


@pytest.mark.parametrize(
    "against, message",
    [
        ("correction", "--against takes settings, e.g. correction=none, not 'correction'"),
        ("correction=global", "no row of the table has correction=global: correction is joint, none"),
        ("corection=none", "--against: 'corection' is not a setting of these runs (did you mean 'correction'?)"),
    ],
)
def test_a_baseline_that_does_not_exist_is_named(runs, against, message, capsys):
    assert main(["table", str(runs), "--against", against]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("against", "title"),
    [
        ({"correction": "none"}, "difference from none, 95 % interval"),
        ({"correction": "joint", "correction.beta": "none"}, "difference from joint, 95 % interval"),
        ({"correction.beta": "none"}, "difference from no beta, 95 % interval"),
    ],
)
def test_a_heading_names_the_baseline_by_what_it_has(tmp_path, against, title):
    """An option that the baseline lacks is named only if nothing else tells the baseline."""
    correction = "none" if against.get("correction") == "none" else "joint"
    write(tmp_path, correction, 0, 0.1, 0.5)
    shown = table(tmp_path, columns=["correction", "test.accuracy"], against=against)
    assert any(column.title.startswith(title) for column in shown.columns)


def test_the_picture_has_a_line_per_difference_coloured_by_its_sign(runs, tmp_path):
    """joint at 0.1: +2.00 ± 2.48, not decided. At 0.2: −0.40, −0.50, −0.30, so −0.4 ± 4.303 · 0.1/√3 = 0.248: worse."""
    shown = table(runs, columns=["correction", "test.accuracy"], best_per=["client.learning_rate", "correction"],
                  sort="test.accuracy")  # fmt: skip
    with pytest.raises(ValueError, match="add --against"):
        draw_differences(shown, tmp_path / "none.svg")
    drawn = tmp_path / "new" / "differences.svg"
    best = ["--best-per", "client.learning_rate,correction", "--sort", "test.accuracy"]
    against = ["--against", "correction=none,client.learning_rate=0.1"]
    assert main(["table", str(runs), *best, *against, "--picture", str(drawn)]) == 0
    text = drawn.read_text()
    assert "difference from none, 0.1, 95 % interval (%)" in text
    assert NOT_DECIDED.lower() in text and WORSE.lower() in text and BETTER.lower() not in text
    assert main(["table", str(runs), "--picture", "differences.gif"]) == 2


def test_a_line_of_the_picture_is_named_by_the_settings_that_the_table_shows(tmp_path):
    """And by nothing else that differs; an option that is on by its name alone."""
    for correction, lagged in (("none", None), ("joint", None), ("moments", True)):
        options = {} if lagged is None else {"lagged": lagged}
        for seed in (0, 1):
            write_run(tmp_path / f"{correction}-{seed}", [0.5], correction={"name": correction, **options}, seed=seed,
                      client={"name": "adam", "learning_rate": 0.1 if lagged else 0.2})  # fmt: skip
    columns = ["--columns", "client.name,correction,correction.lagged,test.accuracy"]
    best = ["--best-per", "correction,correction.lagged", "--sort", "test.accuracy"]
    against = ["--against", "correction=none,correction.lagged=none"]
    drawn = tmp_path / "differences.svg"
    assert main(["table", str(tmp_path), *columns, *best, *against, "--picture", str(drawn)]) == 0
    text = drawn.read_text()
    assert "client adam, joint correction<" in text and "client adam, moments correction, lagged<" in text
    named = ["--columns", "run,correction,test.accuracy"]
    assert main(["table", str(tmp_path), *named, *best, *against, "--picture", str(drawn)]) == 0
    assert "moments correction, client rate 0.1, lagged<" in drawn.read_text()


def test_a_table_of_the_runs_with_given_settings(runs, capsys):
    assert main(["table", str(runs), "--where", "correction=joint", "--columns", "correction,seed"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows and all(row.startswith("| joint |") for row in rows)


def test_settings_that_no_run_has_are_named(runs, capsys):
    assert main(["table", str(runs), "--where", "correction=global"]) == 2
    assert "no run has correction=global: correction is joint, none" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--over", "--where", "--against"])
def test_a_misspelt_setting_of_a_table_is_refused_with_the_nearest(runs, flag, capsys):
    value = "sead" if flag == "--over" else "sead=1"
    assert main(["table", str(runs), flag, value]) == 2
    assert f"{flag}: 'sead' is not a setting of these runs (did you mean 'seed'?)" in capsys.readouterr().err


def test_a_table_over_another_setting_than_the_seed_lists_its_values(tmp_path, capsys):
    for split in (2, 10):
        write_run(tmp_path / f"run-{split}", [0.5], task_options={"seed": split})
    assert main(["table", str(tmp_path), "--over", "task_options.seed"]) == 0
    heading, _, row = capsys.readouterr().out.splitlines()
    assert "seeds" not in heading and "| 2, 10 |" in row


@pytest.mark.parametrize(
    ("value", "interval", "percent", "text"),
    [
        (-0.0012, 0.0034, True, "−0.12 ± 0.34"),
        (0.00351, None, True, "+0.35"),
        (-1.3e-9, 5.4e-9, False, "−1.3e-09 ± 5.4e-09"),  # the exponent is not a sign
    ],
)
def test_a_difference_is_written_with_its_sign_and_in_points_for_fractions(value, interval, percent, text):
    assert difference_text(Difference(value, interval, 3), Measure("test.any", percent=percent)) == text

"""Verdicts follow from intervals, and every claim leads to the page behind it."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from fedtrue.reports.differences import Difference
from fedtrue.reports.measures import Measure
from fedtrue.runner.records import Run

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "experiments"))
claims = importlib.import_module("claims")
CLAIMS = [claim for section in claims.read_claims().values() for claim in section]
YES, NO, OPEN = claims.SUPPORTED, claims.CONTRADICTED, claims.UNDECIDED


@pytest.mark.parametrize(
    ("comparisons", "verdict"),
    [
        ([YES], "holds"),
        ([YES, YES], "holds"),
        ([YES, OPEN], "holds in part"),
        ([YES, NO], "holds in part"),
        ([OPEN, NO], "does not hold"),
        ([NO], "does not hold"),
        ([OPEN, OPEN], "not decided"),
    ],
)
def test_a_verdict_is_what_its_comparisons_come_to(comparisons, verdict):
    assert claims.verdict_of(comparisons) == verdict


@pytest.mark.parametrize(
    ("mean", "half", "higher_is_better", "verdict"),
    [
        (0.3, 0.2, True, YES),  # 0.1 … 0.5
        (0.3, 0.4, True, OPEN),  # −0.1 … 0.7
        (-0.3, 0.2, True, NO),
        (-0.3, 0.2, False, YES),  # a loss is better if it is lower
        (0.3, 0.2, False, NO),
    ],
)
def test_better_needs_an_interval_on_the_claimed_side_of_0(mean, half, higher_is_better, verdict):
    compared = claims.Comparison(records=["any"], of="a", than="b")
    assert compared.verdict(Difference(mean, half, 3), Measure("test.any", higher_is_better)) == verdict


@pytest.mark.parametrize(
    ("mean", "half", "verdict"),
    [
        (0.002, 0.002, YES),  # 0 … 0.4 points
        (-0.004, 0.002, OPEN),  # −0.6 … −0.2
        (-0.008, 0.002, NO),  # −1.0 … −0.6
    ],
)
def test_a_published_number_is_reached_if_the_interval_is_within_the_margin(mean, half, verdict):
    compared = claims.Comparison(records=["any"], of="a", within=0.5)
    assert compared.verdict(Difference(mean, half, 5), Measure("test.accuracy", True, percent=True)) == verdict


def test_good_cells_are_counted_against_the_best_of_both_and_against_their_own_best(monkeypatch):
    accuracy = {("adagrad", 0.1): 0.10, ("adagrad", 0.3): 0.09, ("sgd", 0.1): 0.07, ("sgd", 0.3): 0.06}
    runs = [cell_run(name, rate, value) for (name, rate), value in accuracy.items()]
    monkeypatch.setattr(claims, "_runs", lambda name: runs)
    compared = {"records": ["any"], "of": {"client.name": "adagrad"}, "than": {"client.name": "sgd"}, "good_share": 0.8}
    both, own = (claims.GoodCells(**compared, own_best=own_best).outcome() for own_best in (False, True))
    assert "+2.0 cells (1)" in both.text  # 0.10 and 0.09 reach 0.08; 0.07 and 0.06 do not
    assert "+0.0 cells (1)" in own.text  # 0.07 and 0.06 reach 0.056
    assert both.verdict == OPEN  # a single seed has no interval


def cell_run(client, rate, accuracy):
    values = np.array([0]), np.array([accuracy])
    config = {"client": {"name": client, "learning_rate": rate}, "seed": 0}
    metrics = {"accuracy": {"higher_is_better": True, "percent": True}}
    return Run(
        Path("any"),
        "any",
        config,
        {"commit": "abc"},
        {"round": np.array([0])},
        {"test": {"accuracy": values}},
        {"status": "finished", "metrics": metrics},
        "",
        Path("any"),
        True,
    )


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.text[:40])
def test_a_claim_leads_to_its_page_and_says_what_decides_it(claim):
    file, _, anchor = claim.page.partition("#")
    page = (ROOT / "docs" / file).read_text()
    headings = [re.sub(r"[^a-z0-9 _-]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in page.splitlines()]
    assert not anchor or anchor in headings
    assert claim.comparisons or (claim.measured and claim.verdict)


@pytest.mark.parametrize("claim", [c for c in CLAIMS if not c.comparisons], ids=lambda claim: claim.text[:40])
def test_numbers_of_a_claim_in_words_are_on_its_page(claim):
    page = (ROOT / "docs" / claim.page.partition("#")[0]).read_text()
    numbers = re.findall(r"\d+\.\d+|\d+ of \d+", claim.measured)
    assert numbers and [number for number in numbers if number not in page] == []

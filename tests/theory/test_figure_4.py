"""Figure 4: what it measures, how it selects the best rate, and that a measurement can be redrawn from its file."""

import gzip
import json

import jax
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.theory import figure_4

STEPS, RATES = 4, (0.5, 0.2)
CURVATURES, SIZES = (2.5, 3.5), (1, 3)


DEVIATIONS = (0.1, 10.0)


@pytest.fixture(scope="module")
def task():
    """Two quadratic bowls: from any two starts SGD contracts by exactly (1 − ηc)² per step."""
    clients = [{"curvature": np.full(size, c)} for c, size in zip(CURVATURES, SIZES)]
    return ft.tasks.from_arrays(
        clients,
        init=lambda key: jax.random.normal(key, (3,)),
        loss=lambda params, example: 0.5 * example["curvature"] * (params**2).sum(),
        batch_size=4,
    )


def measured(task, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure_4, "OPTIMIZERS", {"SGD": ft.client.sgd, "Adam": ft.client.adam})
        patch.setattr(figure_4, "RATES", RATES)
        return figure_4.measure(task, STEPS, orders=2, starts=2, **options)


@pytest.fixture(scope="module")
def document(task):
    return measured(task)


def curve(document, optimizer, rate):
    return next(c for c in document["curves"] if (c["optimizer"], c["rate"]) == (optimizer, rate))


@pytest.mark.parametrize("rate", RATES)
def test_sgds_h_is_the_weighted_mean_of_the_clients_closed_forms(document, rate):
    k = np.arange(1, STEPS + 1)
    weights = np.array(SIZES) / sum(SIZES)
    exact = sum(w * (1 - rate * c) ** (2 * k) for w, c in zip(weights, CURVATURES))
    np.testing.assert_allclose(curve(document, "SGD", rate)["h"], exact, rtol=1e-5)  # six digits are written
    np.testing.assert_allclose(curve(document, "SGD", rate)["deviation"], 0, atol=1e-6)  # for all starts


def test_the_best_rate_is_the_lowest_at_the_last_step_and_need_not_be_the_largest(document):
    best = figure_4.best_curves(document)
    assert set(best) == {"SGD", "Adam"}
    assert best["SGD"]["rate"] == 0.2  # ¼·0.5⁸ + ¾·0.3⁸ = 0.001 against ¼·0.25⁸ + ¾·0.75⁸ = 0.075 at 0.5
    for name, chosen in best.items():
        assert chosen["h"][-1] == min(c["h"][-1] for c in document["curves"] if c["optimizer"] == name)


def test_starts_far_apart_change_adams_contraction_and_not_sgds_on_quadratics(task):
    rows = {row["method"]: row["numbers"] for row in figure_4.rows(measured(task, deviations=DEVIATIONS))}
    assert list(rows) == ["SGD, starts 0.1", "SGD, starts 10", "Adam, starts 0.1", "Adam, starts 10"]
    near, far = (rows[f"SGD, starts {d:g}"][f"h({STEPS})"] for d in DEVIATIONS)
    assert near == pytest.approx(far, rel=1e-5)  # (1 − ηc)²ᵏ from any start
    # Adam moves each weight by about η per step: 4 steps of 0.5 cannot bring starts together that are 10 apart
    assert rows["Adam, starts 10"][f"h({STEPS})"] > 0.5
    assert rows["SGD, starts 10"]["difference from SGD"] == 0


@pytest.mark.slow
def test_many_deviations_are_one_picture_with_a_panel_each(task, tmp_path):
    deviations = tuple(range(1, 7))  # 12 curves: more than there are colours
    file = tmp_path / "h.json"
    file.write_text(json.dumps(measured(task, deviations=deviations)))
    assert main(["theory", "contraction", "--from", str(file), "-o", str(tmp_path / "h.png")]) == 0
    assert (tmp_path / "h.png").stat().st_size > 20_000


def test_the_difference_from_sgd_is_over_the_same_starts(document):
    best = figure_4.best_curves(document)
    differences = np.subtract(best["Adam"]["last"], best["SGD"]["last"])
    adam = {row["method"]: row["numbers"] for row in figure_4.rows(document)}["Adam"]
    assert adam["difference from SGD"] == pytest.approx(differences.mean())
    # two starts: t(1) = 12.706, s = |a − b| / √2, so t s / √2 = 12.706 |a − b| / 2
    assert adam["± 95 %"] == pytest.approx(12.706 * abs(differences[0] - differences[1]) / 2, rel=1e-4)


def test_a_document_is_drawn_and_printed_from_its_file_without_measuring(document, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figure_4, "measure", lambda *arguments: pytest.fail("measured"))
    file = tmp_path / "h.json"
    file.write_text(json.dumps(document))
    assert main(["theory", "contraction", "--from", str(file), "-o", str(tmp_path / "new" / "h.png"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["curves"] == document["curves"] and (tmp_path / "new" / "h.png").stat().st_size > 10_000
    assert main(["theory", "contraction", "--from", str(file), "--markdown"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("| client | best rate | h(1) | h(3) | h(4) |") and said.count("\n") == 4
    (tmp_path / "h.json.gz").write_bytes(gzip.compress(file.read_bytes()))
    assert main(["theory", "contraction", "--from", str(tmp_path / "h.json.gz"), "--markdown"]) == 0
    assert capsys.readouterr().out == said
    for asked in (["--steps", "100"], ["--single-client"], ["--start-deviations", "1"]):
        assert main(["theory", "contraction", "--from", str(file), *asked]) == 2
        assert "--from shows what was measured before" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", '{"curves": []}'])
def test_a_file_with_other_content_is_refused_in_one_line(text, tmp_path, capsys):
    (tmp_path / "h.json").write_text(text)
    assert main(["theory", "contraction", "--from", str(tmp_path / "h.json")]) == 2
    assert "is not what `fedtrue theory contraction --json` prints" in capsys.readouterr().err
    (tmp_path / "h.json.gz").write_text(text)
    assert main(["theory", "contraction", "--from", str(tmp_path / "h.json.gz")]) == 2
    assert "is not what `fedtrue theory contraction --json` prints" in capsys.readouterr().err
    assert main(["theory", "contraction", "--from", str(tmp_path / "none.json")]) == 2
    assert "none.json does not exist" in capsys.readouterr().err


def test_missing_data_is_reported_in_one_line_with_its_cure(tmp_path, monkeypatch, capsys):
    from fedtrue.data import locations

    monkeypatch.setenv("FEDTRUE_DATA", str(tmp_path))
    monkeypatch.setattr(locations, "_user_folder", lambda: tmp_path / "user")
    assert main(["theory", "contraction", "-o", str(tmp_path / "h.png")]) == 2
    error = capsys.readouterr().err
    assert "fedtrue data get mnist" in error and error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.data
def test_all_of_mnist_as_a_single_client_takes_the_steps_asked_for(real_data, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(figure_4, "RATES", (0.02,))
    monkeypatch.setattr(figure_4, "OPTIMIZERS", {"SGD": ft.client.sgd})
    words = ["theory", "contraction", "--single-client", "-o", str(tmp_path / "h.png"), "--json", "--steps"]
    assert main([*words, "2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["clients"] == 1 and len(answer["curves"][0]["h"]) == 2
    assert main([*words, "0"]) == 2
    assert "--steps" in capsys.readouterr().err
    assert main([*words, "2", "--start-deviations", "1,-1"]) == 2
    assert "--start-deviations: '-1' is not a number above 0" in capsys.readouterr().err


@pytest.mark.data
def test_a_few_steps_of_two_real_writers_contract_with_every_optimizer(real_data, monkeypatch):
    monkeypatch.setattr(figure_4, "RATES", (0.02,))
    document = figure_4.measure(figure_4.mnist_writers(2), steps=3, orders=2, starts=1)
    assert document["clients"] == 2
    assert [found["optimizer"] for found in document["curves"]] == ["SGD", "Adagrad", "Adam", "Yogi"]
    for found in document["curves"]:
        assert len(found["h"]) == 3 and 0 < found["h"][-1] < 1

"""Figure 1 is drawn from numbers alone."""

import json

import numpy as np

from fedtrue.cli import main
from fedtrue.reports.draw_figure_1 import draw_curves, draw_landscape
from fedtrue.theory import figure_1

NAMES = [method.name for method in figure_1.METHODS]


def test_the_landscape_is_drawn_from_a_document_and_a_field(tmp_path):
    numbers = {"x1": 1.0, "x2": 0.5, "distance from the minimum": 0.25}
    document = {
        "minimiser": [1.0, 0.25],
        "client_minima": [[0.0, 0.0], [2.0, 1.0]],
        "rows": [{"method": name, "numbers": numbers} for name in NAMES],
    }
    x1, x2 = np.linspace(-1, 3, 5), np.linspace(-1, 1, 4)
    field = figure_1.Field(x1, x2, {name: np.arange(20.0).reshape(4, 5) for name in NAMES})
    draw_landscape(document, field, tmp_path / "landscape.png")
    assert (tmp_path / "landscape.png").stat().st_size > 10_000


def test_the_curves_are_drawn_from_a_document(tmp_path):
    distances = {name: [4.0, 2.0, 1.0] for name in NAMES}
    draw_curves({"decay_rounds": [1], "distances": distances}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_the_command_computes_draws_and_creates_the_folder_of_the_picture(tmp_path, capsys):
    picture = tmp_path / "new" / "curves.png"
    assert main(["theory", "curves", "-o", str(picture), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["picture"] == str(picture) and set(answer["distances"]) == set(NAMES)
    assert picture.stat().st_size > 10_000

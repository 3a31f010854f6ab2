"""The picture of who holds what."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import fedtrue as ft
from fedtrue.reports import holdings


def clients(labels_of_clients, classes=None):
    data = [{"x": np.zeros(len(labels)), "y": np.array(labels)} for labels in labels_of_clients]
    return ft.data.from_dicts(data, label="y", classes=classes)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved; nothing is written."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **settings: figures.append(figure))
    return figures


def test_counts_are_those_of_every_client_and_class_in_any_view():
    data = clients([["cat", "dog", "dog"], ["owl"]])
    assert holdings.class_counts(data).tolist() == [[1, 2, 0], [0, 0, 1]]
    assert holdings.class_counts(data.subset([1, 0])).tolist() == [[0, 0, 1], [1, 2, 0]]
    assert holdings.class_counts(data.take(1)).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_a_few_clients_are_stacked_bars_with_the_names_of_classes_and_clients(drawn):
    holdings.draw_holdings(clients([["cat", "dog", "dog"], ["owl"]]), Path("p.png"), "animals")
    (axes,) = drawn[0].axes
    heights = np.array([[bar.get_height() for bar in bars] for bars in axes.containers])
    assert heights.tolist() == [[1, 0], [2, 0], [0, 1]]  # class, client
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["owl", "dog", "cat"]  # as they are stacked
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1"]
    assert axes.get_title() == "animals: 2 clients, 4 examples"


def test_no_two_classes_of_a_stacked_bar_look_the_same(drawn):
    holdings.draw_holdings(clients([list(range(holdings.MAX_COLOURS))]), Path("p.png"), "classes")
    looks = {(bars[0].get_facecolor(), bars[0].get_hatch()) for bars in drawn[0].axes[0].containers}
    assert len(looks) == holdings.MAX_COLOURS


def test_many_clients_are_a_heat_map_sorted_by_their_most_frequent_class(drawn):
    generator = np.random.default_rng(0)
    data = clients([generator.choice(4, 10, p=generator.dirichlet([0.2] * 4)) for _ in range(200)])
    holdings.draw_holdings(data, Path("p.png"), "many")
    shares = drawn[0].axes[0].get_images()[0].get_array()
    assert shares.shape == (4, 200)
    np.testing.assert_allclose(shares.sum(axis=0), 1.0)
    assert (np.diff(shares.argmax(axis=0)) >= 0).all()


def test_data_without_classes_is_drawn_by_size(drawn):
    data = ft.data.as_client_data([{"x": np.zeros(n)} for n in (1, 5, 3)])
    assert holdings.class_counts(data) is None
    holdings.draw_holdings(data, Path("p.png"), "sizes")
    assert drawn[0].axes[0].get_title() == "sizes: 3 clients, 9 examples"
    numbers = ft.data.from_dicts([{"y": np.array([0.5, 1.5])}])
    assert holdings.class_counts(numbers) is None  # numbers to predict are no classes


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_picture_is_written_in_three_formats(suffix, tmp_path):
    path = tmp_path / f"p.{suffix}"
    assert holdings.draw_holdings(clients([[0, 1], [1]]), path, "two") == path
    assert path.stat().st_size > 1000

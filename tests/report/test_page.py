"""The page's text: complete in itself, and a label is only ever text. What it does is tested in tests/browser."""

import json
import re

import jinja2
import pytest

from fedtrue.report.page import page, rendered
from fedtrue.report.page_data import Arrays
from fedtrue.runner.records import find_runs, read_run
from tests.report.made_runs import learning, write_run

MEAN_OF_100 = "test accuracy, mean of the 100 evaluations in the last 100 rounds"
CARD = ('span class="card-name"', "strong", 'span class="card-note"')
HOSTILE = "</script><script>alert(1)</script><b>\"'&{{data}}"


def written(folder, target):
    return page([read_run(path) for path in find_runs([folder])], target)


def without_plotly(text):
    """The page less Plotly's own source, which holds addresses and words of its own."""
    return re.sub(r"<script>/\*\*\s*\* plotly\.js.*?</script>", "", text, flags=re.S)


def test_a_part_that_the_page_misses_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="version"):
        rendered({"title": "a page without its parts"})


def test_equal_arrays_are_kept_once():
    arrays = Arrays()
    assert [arrays.place([1.0, 2.0]), arrays.place([1.0]), arrays.place([1.0, 2.0]), arrays.place(None)] == [
        0,
        1,
        0,
        None,
    ]
    assert len(arrays.packed) == 2


def test_a_label_is_text_wherever_it_stands(tmp_path):
    write_run(tmp_path / "runs" / "run", [0.5], label=HOSTILE)
    text = without_plotly(written(tmp_path / "runs", tmp_path / "report.html"))
    assert "alert(1)</script>" not in text
    assert text.count("<script>") == 1  # ours; Plotly's was taken out, the data's has a type
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
    assert json.loads(data)["groups"][0]["name"] == HOSTILE


def test_the_page_fetches_nothing(made_runs, tmp_path):
    text = without_plotly(written(made_runs["methods"], tmp_path / "report.html"))
    assert "default-src 'none'" in text
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)


def test_links_to_configs_are_relative_to_the_report(tmp_path):
    write_run(tmp_path / "runs" / "a run", [0.5])
    text = written(tmp_path / "runs", tmp_path / "out" / "report.html")
    assert 'href="../runs/a%20run/config.toml"' in text
    assert "[client]" in text  # and the config itself is there for when the folder is not


def test_the_card_the_marked_row_and_the_figures_name_the_same_best_run(tmp_path):
    """The one that ends highest is not the one whose mean is: only one of them may be called best."""
    write_run(tmp_path / "runs" / "rising", [0.1] * 99 + [0.9], label="rising")  # mean (99 · 0.1 + 0.9) / 100 = 0.108
    write_run(tmp_path / "runs" / "level", [0.5] * 100, label="level", correction="none")
    text = without_plotly(written(tmp_path / "runs", tmp_path / "report.html"))
    name, value, note = (rf"<{tag}>(.*?)</{tag.split()[0]}>" for tag in CARD)
    assert re.search(rf"{name}\s*{value}\s*{note}", text).groups() == (f"highest {MEAN_OF_100}", "50.00 %", "level")
    marked = re.findall(r'<th scope="row"><a href="#run-\d">(\w+)</a>\s*<span class="status best">best</span>', text)
    assert marked == ["level"]
    assert f"The run marked best has the highest {MEAN_OF_100}." in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    accuracy = data["measures"][0]
    assert accuracy["statistic"] == MEAN_OF_100
    assert [data["groups"][place]["name"] for place in accuracy["order"]] == ["level", "rising"]


def test_thinning_is_said_on_the_page_and_only_when_it_happened(tmp_path):
    data = lambda text: json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    write_run(tmp_path / "short" / "run", learning(50, 0.5, 5))
    write_run(tmp_path / "long" / "run", learning(1500, 0.5, 5))
    assert data(written(tmp_path / "short", tmp_path / "r.html"))["thinned"] is None
    assert data(written(tmp_path / "long", tmp_path / "r.html"))["thinned"] == 1000


def test_the_same_records_give_the_same_page(made_runs, tmp_path):
    target = tmp_path / "report.html"
    assert written(made_runs["sweep"], target) == written(made_runs["sweep"], target)


@pytest.mark.parametrize(
    "part", ["Compared with published numbers", "57.68", 'scope="row"', 'scope="col"', "<figcaption", 'lang="en"']
)
def test_the_page_has(part, made_runs, tmp_path):
    assert part in without_plotly(written(made_runs["methods"], tmp_path / "report.html"))


def test_runs_without_a_reference_have_no_section_for_it(made_runs, tmp_path):
    page = written(made_runs["sweep"], tmp_path / "report.html")
    assert "Compared with published numbers" not in without_plotly(page)


def test_a_run_that_has_only_begun_is_shown_among_others(tmp_path):
    write_run(tmp_path / "runs" / "a", [0.5])
    write_run(tmp_path / "runs" / "b", [], status="running", correction="none")
    assert "running" in without_plotly(written(tmp_path / "runs", tmp_path / "report.html"))

"""The HTML of the page: self-contained, every label escaped. Its behaviour is tested in tests/browser."""

import json
import re

import jinja2
import pytest

from fedtrue.reports.page import render_page, report_page
from fedtrue.reports.page_data import PackedArrays
from fedtrue.runner.records import find_runs, read_run
from tests.reports.made_runs import learning, write_run

MEAN_OF_100 = "test accuracy, mean of the 100 evaluations in the last 100 rounds"
CARD = ('span class="card-name"', "strong", 'span class="card-note"')
HOSTILE = "</script><script>alert(1)</script><b>\"'&{{data}}"


def page_text(folder, target):
    return report_page([read_run(path) for path in find_runs([folder])], target)


def without_plotly(text):
    """The page without the source of Plotly, which contains addresses and texts."""
    return re.sub(r"<script>/\*\*\s*\* plotly\.js.*?</script>", "", text, flags=re.S)


def test_a_missing_template_variable_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="version"):
        render_page({"title": "a page without its parts"})


def test_equal_arrays_are_stored_once():
    arrays = PackedArrays()
    packed = [arrays.index_of(array) for array in ([1.0, 2.0], [1.0], [1.0, 2.0], None)]
    assert packed == [0, 1, 0, None]
    assert len(arrays.packed) == 2


def test_a_label_is_escaped_everywhere(tmp_path):
    write_run(tmp_path / "runs" / "run", [0.5], label=HOSTILE)
    text = without_plotly(page_text(tmp_path / "runs", tmp_path / "report.html"))
    assert "alert(1)</script>" not in text
    assert text.count("<script>") == 1  # ours; Plotly's was taken out, the data's has a type
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
    assert json.loads(data)["groups"][0]["name"] == HOSTILE


def test_the_page_loads_nothing_from_the_network(made_runs, tmp_path):
    text = without_plotly(page_text(made_runs["methods"], tmp_path / "report.html"))
    assert "default-src 'none'" in text
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)


def test_links_to_configs_are_relative_to_the_report(tmp_path):
    write_run(tmp_path / "runs" / "a run", [0.5])
    text = page_text(tmp_path / "runs", tmp_path / "out" / "report.html")
    assert 'href="../runs/a%20run/config.toml"' in text
    assert "[client]" in text  # the config itself is also on the page, in case the folder is missing


def test_the_card_the_marked_row_and_the_figures_name_the_same_best_run(tmp_path):
    """One run has the highest final value, another the highest mean: only the second may be called best."""
    write_run(tmp_path / "runs" / "rising", [0.1] * 99 + [0.9], label="rising")  # mean (99 · 0.1 + 0.9) / 100 = 0.108
    write_run(tmp_path / "runs" / "level", [0.5] * 100, label="level", correction="none")
    text = without_plotly(page_text(tmp_path / "runs", tmp_path / "report.html"))
    name, value, note = (rf"<{tag}>(.*?)</{tag.split()[0]}>" for tag in CARD)
    assert re.search(rf"{name}\s*{value}\s*{note}", text).groups() == (f"highest {MEAN_OF_100}", "50.00 %", "level")
    marked = re.findall(r'<th scope="row"><a href="#run-\d">(\w+)</a>\s*<span class="status best">best</span>', text)
    assert marked == ["level"]
    assert f"The run marked best has the highest {MEAN_OF_100}." in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    accuracy = data["measures"][0]
    assert accuracy["statistic"] == MEAN_OF_100
    assert [data["groups"][place]["name"] for place in accuracy["order"]] == ["level", "rising"]


def test_the_page_tells_of_thinning_only_if_curves_were_thinned(tmp_path):
    data = lambda text: json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    write_run(tmp_path / "short" / "run", learning(50, 0.5, 5))
    write_run(tmp_path / "long" / "run", learning(1500, 0.5, 5))
    assert data(page_text(tmp_path / "short", tmp_path / "r.html"))["thinned"] is None
    assert data(page_text(tmp_path / "long", tmp_path / "r.html"))["thinned"] == 1000


def test_the_same_records_give_the_same_page(made_runs, tmp_path):
    target = tmp_path / "report.html"
    assert page_text(made_runs["sweep"], target) == page_text(made_runs["sweep"], target)


@pytest.mark.parametrize(
    "part", ["Compared with published numbers", "57.68", 'scope="row"', 'scope="col"', "<figcaption", 'lang="en"']
)
def test_the_page_contains(part, made_runs, tmp_path):
    assert part in without_plotly(page_text(made_runs["methods"], tmp_path / "report.html"))


def test_runs_without_a_reference_have_no_section_for_it(made_runs, tmp_path):
    page = page_text(made_runs["sweep"], tmp_path / "report.html")
    assert "Compared with published numbers" not in without_plotly(page)


def test_a_run_without_a_round_is_shown_next_to_others(tmp_path):
    write_run(tmp_path / "runs" / "a", [0.5])
    write_run(tmp_path / "runs" / "b", [], status="running", correction="none")
    assert "running" in without_plotly(page_text(tmp_path / "runs", tmp_path / "report.html"))


def test_a_run_with_an_exploded_round_says_so_beside_its_config_and_in_the_number_of_runs(tmp_path):
    folders = [write_run(tmp_path / "runs" / name, [0.5] * 30, label=name) for name in ("exploded", "fine")]
    records = folders[0] / "metrics.jsonl"
    records.write_text(records.read_text().replace('"pseudo_gradient_norm": 0.25', '"pseudo_gradient_norm": 9000.0'))
    text = without_plotly(page_text(tmp_path / "runs", tmp_path / "report.html"))
    assert "all finished, 1 exploded" in text
    assert text.count("round 3: the mean update was") == 1  # 1 / (1 + 3) = 0.25 was round 3

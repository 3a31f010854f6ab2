"""The report in headless Chromium: what a reader sees, points at and clicks."""

import math

import pytest
from pytest import approx

from fedtrue.reports.page import report_page
from fedtrue.runner.records import read_run
from tests.reports.made_runs import write_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]  # the page without a browser: tests/reports/test_page.py

# the screen position of the middle of curve n
ON_CURVE = """(() => {
  const plot = document.getElementById('curve-plot'), {xaxis, yaxis} = plot._fullLayout;
  const trace = plot.data.filter(t => t.name)[%d];
  plot.scrollIntoView({block: 'center', behavior: 'instant'});
  const box = plot.getBoundingClientRect(), i = Math.floor(trace.x.length / 2);
  return [box.left + xaxis._offset + xaxis.d2p(trace.x[i]), box.top + yaxis._offset + yaxis.d2p(trace.y[i])];
})()"""
MIDDLE = """(() => { const e = document.querySelector(%r); e.scrollIntoView({block: 'center', behavior: 'instant'});
  const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; })()"""
VISIBLE = "document.querySelectorAll('#curve-plot .scatterlayer .trace').length"


def choose(browser, control, change):
    """Changes a control as its user would."""
    element = f"document.getElementById('{control}')"
    browser.evaluate(f"{element}.{change}; {element}.dispatchEvent(new Event('input', {{bubbles: true}}))")


@pytest.mark.parametrize("name", ["methods", "sweep"])
def test_the_page_opens_without_errors_and_without_the_network(name, opened):
    browser = opened(name)
    assert browser.evaluate(VISIBLE) > 0
    assert browser.console == []
    assert [address for address in browser.requests if not address.startswith(("file:", "data:", "blob:"))] == []


def test_pointing_at_a_curve_shows_its_name(opened):
    browser = opened("methods")
    browser.point(*browser.evaluate(ON_CURVE % 3))
    text = browser.wait_for("document.querySelector('#curve-plot .hoverlayer .hovertext')?.textContent")
    name = browser.evaluate("document.getElementById('curve-plot').data.filter(t => t.name)[3].name")
    assert name in text
    assert "rounds" in text


def test_a_click_on_the_legend_hides_a_curve_and_a_second_click_shows_it_again(opened):
    browser = opened("methods")
    before = browser.evaluate(VISIBLE)
    place = browser.evaluate(MIDDLE % "#curve-plot .legend .legendtoggle")
    browser.click(*place)
    assert browser.wait_for(f"{VISIBLE} < {before} && {VISIBLE}") == before - 2  # the line and its band of seeds
    browser.evaluate("new Promise(done => setTimeout(done, 500))")  # else it is a double click, which isolates
    browser.click(*place)
    browser.wait_for(f"{VISIBLE} == {before}")


def test_dragging_over_the_curves_zooms_in(opened):
    browser = opened("methods")
    width = "(([low, high]) => high - low)(document.getElementById('curve-plot')._fullLayout.xaxis.range)"
    before = browser.evaluate(width)
    x, y = browser.evaluate(MIDDLE % "#curve-plot .nsewdrag")
    browser.drag((x - 60, y - 40), (x + 60, y + 40))
    assert 0 < browser.evaluate(width) < before / 2


def test_a_cell_of_a_heat_map_shows_its_run(opened):
    browser = opened("sweep")
    browser.point(
        *browser.evaluate(MIDDLE % "#panels .panel:nth-child(2) .heat tr:nth-child(4) td:nth-of-type(1) button")
    )
    browser.wait_for("document.querySelector('#cell strong').textContent.startsWith('client sgd')")
    text = browser.evaluate("document.querySelector('#cell').textContent")
    assert "client rate 0.001, server rate 0.01:" in text
    browser.click(*browser.evaluate(MIDDLE % "#cell a"))
    assert browser.wait_for("document.querySelector('.configs details[open]')?.textContent").startswith("sgd-0-0")


def test_diverged_cells_are_hatched_and_the_cells_above_the_threshold_counted(opened):
    browser = opened("sweep")
    assert browser.evaluate("document.querySelectorAll('.heat button.diverged').length") == 3  # i + j ≥ 8 of 7 × 4
    counted = browser.evaluate("[...document.querySelectorAll('.count')].map(e => e.textContent)")
    ringed = browser.evaluate(
        "[...document.querySelectorAll('.panel')].map(p => p.querySelectorAll('.reaches').length)"
    )
    assert counted == [f"{count} of 28 cells above 20.00 %" for count in ringed]
    choose(browser, "threshold", "value = 0")
    assert browser.evaluate("document.querySelectorAll('.reaches').length") == 53  # all but the three


def test_metric_axis_log_scales_and_seeds_change_the_plot(opened):
    browser = opened("methods")
    axis = "document.getElementById('curve-plot')._fullLayout.%s"
    choose(browser, "measure", "value = 'train.loss'")
    assert browser.evaluate(axis % "yaxis.title.text") == "train loss"
    choose(browser, "axis", "value = 'bytes'")
    assert browser.evaluate(axis % "xaxis.title.text") == "bytes communicated"
    last = "Math.max(...document.getElementById('curve-plot').data.map(t => Math.max(...t.x)))"
    assert browser.evaluate(last) == approx(300 * 3e6)  # 300 rounds, 2 MB up and 1 MB down each
    choose(browser, "log-x", "checked = true")
    choose(browser, "log-y", "checked = true")
    assert [browser.evaluate(axis % f"{name}.type") for name in ("xaxis", "yaxis")] == ["log", "log"]
    choose(browser, "every-seed", "checked = true")
    assert (
        browser.evaluate("document.getElementById('curve-plot').data.length") == 14
    )  # 4 methods × 3 seeds, and two runs
    assert browser.console == []


def test_smoothing_is_the_mean_of_the_last_rounds(opened):
    browser = opened("methods")
    assert browser.evaluate("trailingMean([1, 2, 3, 4], [4, 8, 6, 2], 2)") == [4, 6, 7, 4]  # (4+8)/2, (8+6)/2, (6+2)/2
    assert browser.evaluate("trailingMean([10, 20, 30], [1, 3, 5], 20)") == [1, 2, 4]  # rounds count, not points
    gap = browser.evaluate("trailingMean([1, 2, 3], [2, NaN, 4], 3).map(String)")
    assert gap == ["2", "NaN", "3"]  # a gap stays a gap and does not change its neighbours


def test_a_column_is_sorted_and_empty_cells_stay_last(opened):
    browser = opened("methods")
    place = browser.evaluate(
        "[...document.querySelectorAll('#run-table th')].findIndex(e => e.textContent.startsWith('test acc'))"
    )
    column = f"[...document.querySelectorAll('#run-table tbody tr')].map(r => r.cells[{place}].dataset.order)"
    for direction in (1, -1):
        browser.evaluate(f"document.querySelectorAll('#run-table th')[{place}].querySelector('button').click()")
        *numbers, last = [math.nan if cell is None else float(cell) for cell in browser.evaluate(column)]
        assert math.isnan(last)
        assert numbers == sorted(numbers, reverse=direction < 0)
    assert browser.evaluate(f"document.querySelectorAll('#run-table th')[{place}].ariaSort") == "descending"


def test_deselecting_a_run_hides_its_curve_and_searching_hides_rows(opened):
    browser = opened("methods")
    browser.evaluate("document.getElementById('no-curves').click()")
    assert browser.evaluate(VISIBLE) == 0
    browser.evaluate("document.querySelector('#run-table input').click()")
    assert browser.evaluate(VISIBLE) == 2  # a line and a band
    choose(browser, "search", "value = 'joint yogi'")
    assert browser.evaluate("document.querySelectorAll('#run-table tbody tr:not([hidden])').length") == 1


def test_dark_mode_follows_the_system_and_the_button(opened):
    browser = opened("methods")
    line = "document.getElementById('curve-plot').data.at(-1).line.color"
    colours = f"[getComputedStyle(document.body).backgroundColor, {line}]"
    light = browser.evaluate(colours)
    browser.prefer("dark")
    dark = browser.evaluate(colours)
    assert light[0] != dark[0] and light[1] != dark[1]
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate(colours) == light
    browser.evaluate("localStorage.clear()")


@pytest.mark.parametrize("name", ["methods", "sweep"])
def test_on_a_phone_nothing_overflows_sideways(name, opened):
    browser = opened(name, 390, 844, phone=True)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate("document.getElementById('curve-plot').getBoundingClientRect().right") <= 390


def test_every_figure_has_a_caption_every_control_a_name_and_every_table_headings(opened):
    browser = opened("sweep")
    assert browser.evaluate("document.getElementById('curve-caption').textContent").startswith(
        "Test accuracy against rounds"
    )
    unnamed = """[...document.querySelectorAll('button, select, input, a[href]')].filter(e =>
        !(e.ariaLabel || e.textContent.trim() || e.closest('label')?.textContent.trim())).map(e => e.outerHTML)"""
    assert browser.evaluate(unnamed) == []
    assert browser.evaluate("[...document.querySelectorAll('th')].filter(e => !e.scope).length") == 0
    assert browser.evaluate("document.querySelectorAll('#curve-table tbody tr').length") == 12  # as many as curves
    assert browser.evaluate("document.querySelectorAll('h1').length") == 1


@pytest.mark.parametrize("name", ["methods", "sweep"])
def test_card_caption_marked_row_and_heat_map_name_the_same_best_run(name, opened):
    browser = opened(name)
    best = browser.evaluate("document.querySelector('.card-note').textContent")
    statistic = browser.evaluate("document.querySelector('.card-name').textContent").removeprefix("highest ")
    marked = "document.querySelector('#run-table .best').closest('th').querySelector('a').textContent"
    assert browser.evaluate(marked) == best
    caption = browser.evaluate("document.getElementById('curve-caption').textContent")
    assert f"The best of these is {best} (" in caption and caption.endswith(f"by {statistic}.")
    if name == "sweep":
        assert browser.evaluate("document.querySelector('#cell strong').textContent") == best
        assert browser.evaluate("document.getElementById('heat-statistic').textContent").lower() == statistic


def test_the_picture_can_be_saved_and_nothing_can_be_uploaded(opened):
    browser = opened("methods")
    buttons = browser.evaluate("[...document.querySelectorAll('.modebar-btn')].map(e => e.dataset.title.toLowerCase())")
    assert buttons == ["download plot as a png", "zoom", "pan", "zoom in", "zoom out", "reset axes"]
    saved = browser.evaluate("Plotly.toImage('curve-plot', {format: 'png', width: 600, height: 400})")
    assert saved.startswith("data:image/png")
    assert browser.console == []


def test_a_hostile_label_is_shown_as_text(browser, tmp_path):
    label = "</script><img src=x onerror=alert(1)><b>bold</b>"
    run = read_run(write_run(tmp_path / "run", [0.1, 0.2], label=label))
    target = tmp_path / "report.html"
    target.write_text(report_page([run], target))
    browser.open(target)
    assert browser.console == []
    assert browser.evaluate("document.querySelectorAll('img, b').length") == 0
    assert browser.evaluate("document.querySelector('#curve-plot .legendtext').textContent") == label

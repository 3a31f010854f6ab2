import pytest

from fedtrue.reports.page import report_page
from fedtrue.runner.records import find_runs, read_run
from tests.browser.chromium import Chromium, find_chromium
from tests.reports.conftest import made_runs  # noqa: F401  (used as a fixture)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine: apt install chromium")
    started = Chromium(program, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def pages(made_runs, tmp_path_factory):  # noqa: F811
    """One report for each folder of generated runs."""
    folder = tmp_path_factory.mktemp("pages")
    files = {name: folder / f"{name}.html" for name in made_runs}
    for name, runs in made_runs.items():
        text = report_page([read_run(path) for path in find_runs([runs])], files[name], threshold=0.2)
        files[name].write_text(text)
    return files


@pytest.fixture
def opened(browser, pages):
    """`opened("methods")` opens that page at desktop width, in light mode."""

    def go(name, width=1280, height=900, phone=False):
        browser.prefer("light")
        browser.resize(width, height, phone)
        browser.open(pages[name])
        return browser

    return go

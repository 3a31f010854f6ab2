import pytest

from fedtrue.report.page import page
from fedtrue.runner.records import find_runs, read_run
from tests.browser.chromium import Chromium, find_chromium
from tests.report.conftest import made_runs  # noqa: F401  (the same runs)


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
    """The report of each kind of made runs."""
    folder = tmp_path_factory.mktemp("pages")
    written = {}
    for name, runs in made_runs.items():
        written[name] = folder / f"{name}.html"
        written[name].write_text(page([read_run(path) for path in find_runs([runs])], written[name], threshold=0.2))
    return written


@pytest.fixture
def opened(browser, pages):
    """`opened("methods")` opens that page at a desk's width, in the light."""

    def go(name, width=1280, height=900, phone=False):
        browser.prefer("light")
        browser.resize(width, height, phone)
        browser.open(pages[name])
        return browser

    return go

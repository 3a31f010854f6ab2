import pytest

from tests.reports.made_runs import methods, sweep


@pytest.fixture(scope="session")
def made_runs(tmp_path_factory):
    """Folders of generated runs: `methods` (four methods, three seeds) and `sweep` (two panels of rates)."""
    folder = tmp_path_factory.mktemp("runs")
    return {"methods": methods(folder / "methods"), "sweep": sweep(folder / "sweep")}

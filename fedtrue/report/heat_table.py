"""Heat maps as tables: a small one a panel, server rates down, client rates across."""

from collections.abc import Sequence
from typing import Any

from fedtrue.report.heat_map import CLIENT_RATE, SERVER_RATE, Panel, cell_value, count_record, count_text
from fedtrue.report.labels import Group, as_text, title
from fedtrue.report.measures import Measure, group_value, last_means, mean_last_title
from fedtrue.report.table_formats import in_markdown
from fedtrue.report.tables import written
from fedtrue.report.targets import reaches

CORNER = f"{title(SERVER_RATE)} ↓ {title(CLIENT_RATE)} →"


def heat_markdown(panels: Sequence[Panel], measure: Measure, threshold: float) -> str:
    """Title, table and count of each panel; columns are aligned, so that it is text to read as well."""
    return "\n".join(_panel(panel, measure, threshold) for panel in panels)


def _panel(panel: Panel, measure: Measure, threshold: float) -> str:
    runs = [run for group in panel.cells.values() for run in group.runs]
    said = f"**{in_markdown(panel.title)}**: {mean_last_title(measure, last_means(runs, measure))}{measure.unit}"
    table = _aligned(_texts(panel, measure, threshold))
    return "\n".join([said, "", *table, "", count_text(panel, measure, threshold), ""])


def own_rates(panel: Panel) -> tuple[list[float], list[float]]:
    """The server and client rates of this panel's cells: those of other panels would be empty rows."""
    servers, clients = {server for server, _ in panel.cells}, {client for _, client in panel.cells}
    return sorted(servers), sorted(clients)


def _texts(panel: Panel, measure: Measure, threshold: float) -> list[list[str]]:
    servers, clients = own_rates(panel)
    rows = [[_cell(panel.cells.get((server, client)), measure, threshold) for client in clients] for server in servers]
    return [[CORNER, *map(as_text, clients)], *([as_text(server), *row] for server, row in zip(servers, rows))]


def _cell(group: Group | None, measure: Measure, threshold: float) -> str:
    """The value, bold where it reaches the threshold."""
    if group is None:
        return ""
    if "diverged" in group.status:
        return group.status
    text = written(group_value(group, measure), measure)
    return f"**{text}**" if reaches(cell_value(group, measure), measure, threshold) else text


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table, all to the right; the first row is its head."""
    widths = [max(3, *map(len, column)) for column in zip(*rows)]
    line = lambda cells: "| " + " | ".join(cell.rjust(width) for cell, width in zip(cells, widths)) + " |"
    head, *body = map(line, rows)
    return [head, line([":".rjust(width, "-") for width in widths]), *body]


def heat_records(panels: Sequence[Panel], measure: Measure, threshold: float) -> list[dict[str, Any]]:
    """The panels for `--json`: a row of values a server rate, null where a run diverged or is not there."""
    return [{**count_record(panel, measure, threshold), **_values(panel, measure)} for panel in panels]


def _values(panel: Panel, measure: Measure) -> dict[str, Any]:
    servers, clients = own_rates(panel)
    value = lambda place: cell_value(panel.cells[place], measure) if place in panel.cells else None
    return {
        "server_rates": servers,
        "client_rates": clients,
        "values": [[value((server, client)) for client in clients] for server in servers],
    }

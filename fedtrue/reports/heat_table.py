"""Heat maps as tables: one table per panel, one row per server rate, one column per client rate."""

from collections.abc import Sequence
from typing import Any

from fedtrue.reports.heat_map import CLIENT_RATE, SERVER_RATE, Panel, cell_value, count_record, count_text
from fedtrue.reports.labels import Group, runs_of, setting_text, setting_title
from fedtrue.reports.measures import Measure, group_value, last_means, mean_last_title
from fedtrue.reports.number_text import value_text
from fedtrue.reports.table_formats import escape_markdown
from fedtrue.reports.targets import reaches_target

CORNER = f"{setting_title(SERVER_RATE)} ↓ {setting_title(CLIENT_RATE)} →"


def heat_markdown(panels: Sequence[Panel], measure: Measure, threshold: float) -> str:
    """Title, table and count of each panel; columns are padded, so that it is readable as plain text."""
    return "\n".join(_panel_markdown(panel, measure, threshold) for panel in panels)


def _panel_markdown(panel: Panel, measure: Measure, threshold: float) -> str:
    means = last_means(runs_of(panel.cells.values()), measure)
    heading = f"**{escape_markdown(panel.title)}**: {mean_last_title(measure, means)}{measure.unit}"
    table = _padded_markdown(_cell_texts(panel, measure, threshold))
    return "\n".join([heading, "", *table, "", count_text(panel, measure, threshold), ""])


def own_rates(panel: Panel) -> tuple[list[float], list[float]]:
    """The server and client rates of the cells of this panel; those of other panels would be empty rows."""
    servers, clients = {server for server, _ in panel.cells}, {client for _, client in panel.cells}
    return sorted(servers), sorted(clients)


def _cell_texts(panel: Panel, measure: Measure, threshold: float) -> list[list[str]]:
    servers, clients = own_rates(panel)
    cell = lambda server, client: _cell_text(panel.cells.get((server, client)), measure, threshold)
    head = [CORNER, *map(setting_text, clients)]
    return [head, *([setting_text(server), *(cell(server, client) for client in clients)] for server in servers)]


def _cell_text(group: Group | None, measure: Measure, threshold: float) -> str:
    """The value, bold if it reaches the threshold."""
    if group is None:
        return ""
    if "diverged" in group.status:
        return group.status
    text = value_text(group_value(group, measure), measure)
    return f"**{text}**" if reaches_target(cell_value(group, measure), measure, threshold) else text


def _padded_markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table with all columns aligned right; the first row is its head."""
    widths = [max(3, *map(len, column)) for column in zip(*rows)]
    line = lambda cells: "| " + " | ".join(cell.rjust(width) for cell, width in zip(cells, widths)) + " |"
    head, *body = map(line, rows)
    return [head, line([":".rjust(width, "-") for width in widths]), *body]


def heat_records(panels: Sequence[Panel], measure: Measure, threshold: float) -> list[dict[str, Any]]:
    """The panels for `--json`: one row of values per server rate, null if a run diverged or does not exist."""
    return [{**count_record(panel, measure, threshold), **_panel_values(panel, measure)} for panel in panels]


def _panel_values(panel: Panel, measure: Measure) -> dict[str, Any]:
    servers, clients = own_rates(panel)
    value = lambda rates: cell_value(panel.cells[rates], measure) if rates in panel.cells else None
    return {
        "server_rates": servers,
        "client_rates": clients,
        "values": [[value((server, client)) for client in clients] for server in servers],
    }

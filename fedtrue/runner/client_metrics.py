"""The metrics of every evaluated client after the last round: `clients.csv` in the run folder, `Result.clients`.

split,client,loss,accuracy
test,f0000_14,0.41,0.875
"""

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.runner.evaluation import Evaluation

CLIENT_METRICS = "clients.csv"

ClientMetrics = dict[str, dict[str, Any]]  # split → {"client": names, metric: one value per client}


def client_metrics(evaluated: Mapping[str, Evaluation]) -> ClientMetrics:
    """One column per metric, in the order of the clients."""
    return {split: {"client": evaluation.clients, **evaluation.per_client} for split, evaluation in evaluated.items()}


def as_csv(table: ClientMetrics) -> bytes:
    """Numbers are written in full, so `read_client_metrics` returns the same ones."""
    names = list(dict.fromkeys(name for columns in table.values() for name in columns))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["split", *names])
    for split, columns in table.items():
        clients = len(columns["client"])
        values = [columns[name] for name in names if name in columns]
        in_order = [np.asarray(column).tolist() if isinstance(column, np.ndarray) else column for column in values]
        writer.writerows(zip([split] * clients, *in_order))
    return text.getvalue().encode()


def read_client_metrics(path: Path) -> ClientMetrics:
    """The contents of a `clients.csv`; {} if there is none."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return {split: _columns(header[1:], list(of_split)) for split, of_split in groupby(rows, itemgetter(0))}


def _columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The rows of one split, without their first entry."""
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names, 1)}
    return {
        name: values if name == "client" else np.fromiter(map(float, values), np.float64)
        for name, values in columns.items()
    }

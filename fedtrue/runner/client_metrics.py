"""The metrics of every evaluated client after the last round: `clients.csv` in the run folder, `Result.clients`.

split,client,loss,accuracy
test,f0000_14,0.41,0.875
"""

import csv
import io
from collections.abc import Mapping
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
    table: ClientMetrics = {}
    for split in dict.fromkeys(row[0] for row in rows):
        columns = zip(*(row[1:] for row in rows if row[0] == split))
        table[split] = {
            name: list(values) if name == "client" else np.asarray(values, np.float64)
            for name, values in zip(header[1:], columns)
        }
    return table

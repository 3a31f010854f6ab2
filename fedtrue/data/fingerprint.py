"""A short hash of a data set, computed without reading all of it."""

import hashlib

import numpy as np

from fedtrue.data.client_data import ClientData, Ragged

SAMPLED_ROWS = 64  # per column


def fingerprint(data: ClientData) -> str:
    """The first 16 digits of a sha256 over the clients' starts and sizes and evenly spaced rows of every column."""
    digest = hashlib.sha256()
    for array in (data.starts, data.sizes):
        digest.update(np.ascontiguousarray(array, np.int64).tobytes())
    for name, column in sorted(data.columns.items()):
        rows = np.unique(np.linspace(0, len(column) - 1, SAMPLED_ROWS).astype(np.int64))
        digest.update(f"{name} {column.dtype} {len(column)}".encode())
        values = [column[int(row)] for row in rows] if isinstance(column, Ragged) else column[rows]
        for row in values:
            digest.update(np.ascontiguousarray(row).tobytes())
    return digest.hexdigest()[:16]

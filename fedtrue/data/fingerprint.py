"""A short string by which two data sets can be told apart without reading all of them."""

import hashlib

import numpy as np

from fedtrue.data.client_data import ClientData, Ragged

SAMPLED_ROWS = 64  # per column


def fingerprint(data: ClientData) -> str:
    """sha256 over the clients' sizes and places and evenly chosen rows of every column, its first 16 digits."""
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

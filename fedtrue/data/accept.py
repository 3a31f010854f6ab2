"""What users bring as clients, as `ClientData`."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedtrue.data.client_data import ClientData


def as_client_data(value: Any) -> ClientData:
    """`ClientData` as it is, a list of dicts of arrays, or a dict from names to dicts of arrays."""
    if isinstance(value, ClientData):
        return value
    if isinstance(value, Mapping):
        return ClientData.from_clients(list(value.values()), [str(name) for name in value])
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ClientData.from_clients(value)
    raise ValueError(f"clients are a {type(value).__name__}: give a list of dicts of arrays, or a dict of them by name")

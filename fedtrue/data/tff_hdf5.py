"""TFF's HDF5 files, `examples/<client id>/<feature>`: `shakespeare_train.h5`, `stackoverflow_test.h5`, …"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


def read(path: Path, features: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (client id, {feature: value}) of every example, client by client.

    A string is returned as bytes, a number or an array as in the file.
    """
    path = Path(path)
    with _open_clients(path) as clients:
        for client in clients:
            arrays = _feature_arrays(path, client, clients[client], features)
            for values in zip(*arrays):
                yield client, dict(zip(features, values))


def feature_names(path: Path) -> list[str]:
    """The names of the features, those of the first client."""
    with _open_clients(Path(path)) as clients:
        return sorted(clients[next(iter(clients))]) if len(clients) else []


@contextmanager
def _open_clients(path: Path) -> Iterator[Any]:
    import h5py

    if not path.exists():
        raise ValueError(f"{path} does not exist: check the path or FEDTRUE_DATA")
    if not h5py.is_hdf5(path):
        raise ValueError(f"{path} is not an HDF5 file: give one of TFF's .h5 files; nothing was changed")
    try:
        with h5py.File(path, "r") as file:
            if not isinstance(file.get("examples"), h5py.Group):
                raise ValueError(f"{path} has no group 'examples', so it is not in TFF's layout: give a TFF .h5 file")
            yield file["examples"]
    except (OSError, RuntimeError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{path} is damaged or incomplete ({reason}): download it again; nothing was changed"
        ) from None


def _feature_arrays(path: Path, client: str, group: Any, features: Sequence[str]) -> list[np.ndarray]:
    if missing := [feature for feature in features if feature not in group]:
        present = ", ".join(sorted(group))
        raise ValueError(f"{path}: client {client!r} has no {', '.join(missing)}; choose from: {present}")
    arrays = [group[feature][...] for feature in features]
    lengths = {feature: len(array) for feature, array in zip(features, arrays)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{path}: client {client!r} has features of unequal length {lengths}: download the file again")
    return arrays

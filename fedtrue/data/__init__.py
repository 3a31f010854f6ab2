"""Client data: flat arrays with client offsets, their sources, and the cache on disk."""

from fedtrue.data import partition
from fedtrue.data.accept import as_client_data
from fedtrue.data.client_data import ClientData
from fedtrue.data.imports import imported
from fedtrue.data.readers import (
    from_arrow,
    from_csv,
    from_dicts,
    from_huggingface,
    from_images,
    from_json_lines,
    from_leaf,
    from_npz,
    from_pandas,
    from_parquet,
    from_tff,
)

__all__ = [
    "ClientData",
    "as_client_data",
    "from_arrow",
    "from_csv",
    "from_dicts",
    "from_huggingface",
    "from_images",
    "from_json_lines",
    "from_leaf",
    "from_npz",
    "from_pandas",
    "from_parquet",
    "from_tff",
    "imported",
    "partition",
]

"""Client data: flat arrays with client offsets, their sources, and the cache on disk."""

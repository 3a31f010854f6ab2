"""`ft.flower.*`: a method on a real network. Flower is the engine; fedtrue is what runs on either side.

`import fedtrue` does not import this package, and so not Flower: `ft.flower` loads it on first use.
"""

try:
    import flwr as _flwr  # noqa: F401 - only to say how to get it
except ModuleNotFoundError as missing:
    if missing.name != "flwr":
        raise
    raise ModuleNotFoundError("ft.flower needs Flower: pip install 'fedtrue[flower]'", name="flwr") from None

from fedtrue.flower.client import client_app
from fedtrue.flower.local_grid import LocalGrid
from fedtrue.flower.own_clients import answer, correction, reply
from fedtrue.flower.strategy import Strategy
from fedtrue.flower.wire import arrays

__all__ = ["LocalGrid", "Strategy", "answer", "arrays", "client_app", "correction", "reply"]

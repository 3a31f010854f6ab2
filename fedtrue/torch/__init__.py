"""`ft.torch.*`: the exact trace of a `torch.optim` optimizer, kept while your own PyTorch loop trains.

`import fedtrue` does not import this package, and so not PyTorch: `ft.torch` loads it on first use.
"""

try:
    import torch as _torch  # noqa: F401 - only to say how to get it
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    raise ModuleNotFoundError("ft.torch needs PyTorch: pip install 'fedtrue[torch]'", name="torch") from None

from fedtrue.torch.optimizer_trace import OptimizerTrace, trace
from fedtrue.torch.rules import Decay, Rule, Stepped, register

__all__ = ["Decay", "OptimizerTrace", "Rule", "Stepped", "register", "trace"]

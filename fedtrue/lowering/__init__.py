"""Programs lowered by our own rules where XLA compiles an operation badly inside loops, or with weights per lane."""

from fedtrue.lowering.coverage import slow_in_loops
from fedtrue.lowering.program import Program

__all__ = ["Program", "slow_in_loops"]

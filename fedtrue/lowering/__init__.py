"""Programs lowered by our own rules where XLA compiles an operation badly inside loops, or with weights per lane."""

from fedtrue.lowering.program import Program

__all__ = ["Program"]

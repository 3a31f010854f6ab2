"""Check a run for client-drift bias: measure a round at its model, decompose it, judge it."""

from fedtrue.diagnose.decompose import Decomposition, Piece
from fedtrue.diagnose.measure import Diagnosis, Setting, measure_round
from fedtrue.diagnose.verdict import Verdict, judge

__all__ = ["Decomposition", "Diagnosis", "Piece", "Setting", "Verdict", "judge", "measure_round"]

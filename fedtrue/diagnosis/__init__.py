"""Check a run for client-drift bias: measure a round at its model, decompose it, judge it."""

from fedtrue.diagnosis.decompose import Decomposition, Piece
from fedtrue.diagnosis.measure import Diagnosis, Setting, measure_round
from fedtrue.diagnosis.verdict import Verdict, judge

__all__ = ["Decomposition", "Diagnosis", "Piece", "Setting", "Verdict", "judge", "measure_round"]

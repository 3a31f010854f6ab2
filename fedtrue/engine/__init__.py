"""Simulation: cohort → lanes → one compiled program of many rounds. Devices appear here only."""

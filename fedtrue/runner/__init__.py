"""Runs: settings, the round loop, evaluation, records, checkpoints."""

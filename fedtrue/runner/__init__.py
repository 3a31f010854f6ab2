"""Running: the round loop, evaluation, records."""

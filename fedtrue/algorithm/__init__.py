"""The mathematics: client optimizers, traces, corrections, aggregation, server optimizers. No devices, no files."""

"""Figures for the data plane: `python -m benchmarks` prints one table. Not part of the tests."""

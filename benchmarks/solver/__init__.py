"""Benchmarks of the solver: its targets, the published methods, and time against size."""

"""Benchmark of the PPK2 client."""

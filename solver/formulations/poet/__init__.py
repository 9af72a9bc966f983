"""The published program of POET."""

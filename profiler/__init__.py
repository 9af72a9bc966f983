"""Finds out what everything costs: transports, meters, C kernels, trials, statistics."""

"""Finds out what everything costs: transports, toolchains, meters, C kernels, trials, statistics."""

"""Measure on boards what operations cost: transports, meters, programs, trials, statistics."""

"""Comparison of two campaigns, or of two levels of one: shifts, intervals and verdicts."""

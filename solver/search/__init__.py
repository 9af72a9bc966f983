"""Rounds of an engine, each solution held before the referee."""

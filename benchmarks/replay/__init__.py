"""Schedules on boards: how right predictions are, and what methods come to beside each other."""

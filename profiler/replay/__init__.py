"""Schedules run on boards: an execution plan becomes a table in C and lines for the harness."""

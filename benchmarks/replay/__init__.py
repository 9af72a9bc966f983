"""Benchmarks of schedules on boards: accuracy of predictions, methods, the executor's overhead."""

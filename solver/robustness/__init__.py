"""Robustness of schedules to uncertain costs."""

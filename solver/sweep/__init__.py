"""Sweeps: trade-off curves of energy against RAM budgets and deadlines."""

"""Campaigns: boards × networks × budgets × methods, measured in repetitions and compared."""

"""Trade-off curves: energy against budgets and deadlines."""

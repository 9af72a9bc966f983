"""How good a schedule is where costs are uncertain."""

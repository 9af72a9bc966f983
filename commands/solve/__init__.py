"""``solve``: the schedule of least energy that fits the board."""

"""Command ``solve``: find the schedule of least energy that fits the board."""

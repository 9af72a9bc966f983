"""Files of schedules and their graphs, whose stated figures are recomputed when they are read."""

"""Ways to reach a board."""

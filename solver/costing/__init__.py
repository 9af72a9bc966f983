"""A training step and a profile become a costed graph."""

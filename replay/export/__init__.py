"""A schedule as a C project of its own."""

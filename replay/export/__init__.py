"""Export a schedule as a C project."""

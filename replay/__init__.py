"""A schedule becomes a plan, is run on a board, and predicted is held against measured."""

"""Command ``profile``: measure what a training step costs on a board."""

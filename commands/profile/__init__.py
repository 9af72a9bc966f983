"""``profile``: what a training step costs on a board, measured."""

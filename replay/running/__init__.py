"""Training steps on a board, and what they took."""

"""The shared vocabulary: what a board is and what was measured on it."""

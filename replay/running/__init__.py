"""Run training steps on a board and collect their records."""

"""Compare measured steps with the prediction, and explain the difference."""

"""Expected and measured steps joined, and what explains a difference."""

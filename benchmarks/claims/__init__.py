"""What the solver claims, held against exhaustive search on small random problems."""

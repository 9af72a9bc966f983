"""Comparison of the solver's claims with exhaustive search on small random problems."""

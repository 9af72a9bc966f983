"""Joulescope instruments."""

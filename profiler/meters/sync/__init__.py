"""Synchronisation: place an instrument's samples on the board's clock."""

"""Decides what the board should do."""

"""Sensors that the board itself reads."""

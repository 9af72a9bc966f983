"""Meters whose sensors the board itself reads."""

"""Measure costs where a schedule incurs them, and check that they hold."""

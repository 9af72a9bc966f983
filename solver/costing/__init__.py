"""Costed graphs from training steps and device profiles."""

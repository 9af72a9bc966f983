"""Boards that run the harness: one protocol (``base.py``) and its implementations."""

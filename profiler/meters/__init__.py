"""Power meters: one protocol (``base.py``) and its implementations."""

"""One protocol (``base.py``) for boards with the harness on them, and what implements it."""

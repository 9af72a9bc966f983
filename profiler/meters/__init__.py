"""One protocol (``base.py``) for meters, and what implements it."""

"""A device description becomes a connected board and an open meter."""

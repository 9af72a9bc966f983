"""Command ``sweep``: trade-off curves of energy against RAM and time."""

"""Open the board and the meter of a device description."""

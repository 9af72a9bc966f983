"""The scheduling problem as mixed-integer programs."""

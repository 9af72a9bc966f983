"""Networks, their training steps, their data and initial values."""

"""What is trained: networks, their training steps, their data and initial values."""

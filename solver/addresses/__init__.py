"""Planning of arena addresses, and repair of schedules that do not pack."""

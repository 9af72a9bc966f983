"""Lower verified schedules to execution plans."""

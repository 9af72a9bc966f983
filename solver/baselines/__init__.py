"""Published methods and simple schedules for comparison, by name in ``registry``."""

"""Pictures of schedules and profiles: functions that take data and write a PNG or SVG file."""

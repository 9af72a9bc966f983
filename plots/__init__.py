"""Pictures of schedules, profiles, sweeps and replays, written as PNG or SVG files."""

"""Replays any schedule and recomputes what it states; shares no code with the formulations."""

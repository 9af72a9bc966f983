"""Nordic Power Profiler Kit II."""

"""The Nordic Power Profiler Kit II."""

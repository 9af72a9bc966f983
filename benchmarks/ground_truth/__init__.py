"""How right the profiler is, on emulated boards whose truth is known."""

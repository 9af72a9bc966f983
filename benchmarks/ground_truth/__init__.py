"""Accuracy of the profiler on emulated boards, where the truth is known."""

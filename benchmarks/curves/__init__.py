"""Energy and time of a training step against RAM, down to the smallest budget."""

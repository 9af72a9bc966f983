"""Networks of PyTorch, from the exported file to a scheduled step that trains."""

"""Training step of the project's kernels against PyTorch's."""

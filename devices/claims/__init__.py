"""Claims of this process to directories and ports, and who else claims them."""

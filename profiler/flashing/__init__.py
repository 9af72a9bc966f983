"""Write firmware with the board's own tool or boot loader."""

"""A firmware is written by the board's own tool or boot loader."""

"""``run``: a schedule on its board, held against what was predicted."""

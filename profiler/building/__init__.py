"""Build programs and firmware for boards, with their hashes."""

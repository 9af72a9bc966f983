"""Programs and firmware for boards, with their hashes."""

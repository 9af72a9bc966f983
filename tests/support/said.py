"""Lines of a command's standard error that do not depend on how busy the computer is."""

from __future__ import annotations


def sentences(said: str) -> list[str]:
    """Lines of standard error but those that say what is read, on a busy computer."""
    return [line for line in said.splitlines() if not line.startswith("reading ")]

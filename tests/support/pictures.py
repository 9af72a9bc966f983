"""Texts in pictures."""

import re
from pathlib import Path


def texts_of(picture: Path) -> str:
    """All texts of an SVG file, one per line."""
    return "\n".join(re.findall(r"<!-- (.*?) -->", picture.read_text(encoding="utf-8")))

"""What a picture says."""

import re
from pathlib import Path


def said(picture: Path) -> str:
    """All texts of an SVG, one a line."""
    return "\n".join(re.findall(r"<!-- (.*?) -->", picture.read_text(encoding="utf-8")))

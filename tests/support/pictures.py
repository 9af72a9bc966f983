"""Pictures: their colours, what their texts say, and whether these can be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text
from matplotlib.transforms import Bbox

# Pages show a picture at about this width. Text is legible from this height of its font on.
_PAGE_WIDTH_PIXELS = 840
_LEAST_FONT_PIXELS = 8.5
_TOUCH_PIXELS = 1.5


def texts_of(picture: Path) -> str:
    """All texts of an SVG file, one per line."""
    return "\n".join(re.findall(r"<!-- (.*?) -->", picture.read_text(encoding="utf-8")))


def pixels_like(picture: Path, color: str, opacity: float = 1.0) -> npt.NDArray[np.bool_]:
    """Which pixels of a PNG file have a colour, drawn on white; shape [height, width]."""
    drawn = opacity * np.array(to_rgb(color)) + (1 - opacity)
    return np.asarray(np.abs(imread(picture)[..., :3] - drawn).max(axis=-1) < 0.02)


@dataclass(frozen=True)
class _Words:
    """Words as drawn: their box in pixels of the picture, and the height of their font."""

    text: str
    box: Bbox
    font_pixels: float


def require_readable(draw: Callable[[Path], object], path: Path) -> None:
    """Check that all texts of a picture are inside it, apart from each other, and large enough.

    Args:
        draw: Draws the picture to a path.
        path: PNG file to write.
    """
    with _recorded() as (figures, words):
        draw(path)
    width, height = figures[-1].canvas.get_width_height()
    seen = [w for w in words.values() if w.text.strip()]
    assert seen
    for w in seen:
        inside = (
            w.box.x0 >= -_TOUCH_PIXELS
            and w.box.y0 >= -_TOUCH_PIXELS
            and w.box.x1 <= width + _TOUCH_PIXELS
            and w.box.y1 <= height + _TOUCH_PIXELS
        )
        assert inside, f"{w.text!r} leaves the picture of {width} × {height}: {w.box}"
        shown = w.font_pixels * min(1.0, _PAGE_WIDTH_PIXELS / width)
        assert shown >= _LEAST_FONT_PIXELS, f"{w.text!r} is shown {shown:.1f} pixels high"
    corners = [w.box.extents.tolist() for w in seen]
    for (one, (x0, y0, x1, y1)), (other, (u0, v0, u1, v1)) in combinations(
        zip(seen, corners, strict=True), 2
    ):
        shared = min(min(x1, u1) - max(x0, u0), min(y1, v1) - max(y0, v0))
        assert shared <= _TOUCH_PIXELS, f"{one.text!r} overlaps {other.text!r}"


@contextmanager
def _recorded() -> Iterator[tuple[list[Figure], dict[Text, _Words]]]:
    """Context manager that records the texts of the last saved figure as they are last drawn."""
    figures: list[Figure] = []
    words: dict[Text, _Words] = {}
    save, write = Figure.savefig, Text.draw

    def saved(figure: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(figure)
        words.clear()
        save(figure, *arguments, **options)

    def drawn(text: Text, renderer: Any) -> None:
        write(text, renderer)
        if figures and text.get_visible():
            box = Text.get_window_extent(text, renderer)
            font_pixels = renderer.points_to_pixels(text.get_fontsize())
            words[text] = _Words(text.get_text(), box, font_pixels)

    with patch.object(Figure, "savefig", saved), patch.object(Text, "draw", drawn):
        yield figures, words

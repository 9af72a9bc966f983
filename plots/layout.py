"""Pages that have room for their heading, legend and labels, and how they are saved.

All pictures have the same width, so that documents show all of them at the same scale. Text is
measured with the font that draws it; sizes are in inches, sizes of fonts in points.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from scipy.optimize import isotonic_regression

from devices.documents.document import write_atomically
from plots.style import BLACK, DOTS_PER_INCH, GREY, INK

WIDTH_INCHES: Final = 9.0
SMALLEST_POINTS: Final = 7.0
LINE_INCHES: Final = 1.3 * SMALLEST_POINTS / 72
"""Room that a line of the smallest text takes."""

_MARGIN_INCHES = 0.1
_TITLE_POINTS, _HEADING_POINTS = 12.0, 9.0
_TITLE_INCHES, _HEADING_LINE_INCHES = 0.25, 0.18
_AFTER_HEADING_INCHES = 0.08


@cache
def _ruler() -> Figure:
    return Figure(dpi=DOTS_PER_INCH)


@cache
def text_inches(text: str, points: float, weight: str = "normal") -> float:
    """Width of a line of text in inches."""
    drawn = _ruler().text(0, 0, text, fontsize=points, fontweight=weight)
    width = drawn.get_window_extent().width
    drawn.remove()
    return float(width) / DOTS_PER_INCH


def shortened(text: str, room_inches: float, points: float, weight: str = "normal") -> str:
    """Shorten a text in the middle until it fits, because names differ at their ends."""
    kept = len(text)
    short = text
    while kept > 1 and text_inches(short, points, weight) > room_inches:
        kept -= 1
        short = f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"
    return short


def wrapped(text: str, room_inches: float, points: float, weight: str = "normal") -> list[str]:
    """Break a text into lines that fit; words that are too long are shortened."""
    lines = _broken(text, " ", room_inches, points, weight)
    return [shortened(line.rstrip(), room_inches, points, weight) for line in lines]


def name_within(name: str, width_inches: float, height_inches: float) -> str | None:
    """Break a name after dots, in the smallest text, so that it fits a box; None if none does."""
    lines = _broken(name, ".", width_inches, SMALLEST_POINTS, "normal")
    if len(lines) * LINE_INCHES > height_inches:
        return None
    if any(text_inches(line, SMALLEST_POINTS) > width_inches for line in lines):
        return None
    return "\n".join(lines)


def _broken(text: str, after: str, room_inches: float, points: float, weight: str) -> list[str]:
    """Break a text into lines after ``after``; a line with a single part may be too long."""
    *parts, last = text.split(after)
    lines: list[str] = []
    for part in [*(part + after for part in parts), last]:
        if lines and text_inches((lines[-1] + part).rstrip(), points, weight) <= room_inches:
            lines[-1] += part
        else:
            lines.append(part)
    return lines


def spread(centres: Sequence[float], pitch: float, low: float, high: float) -> list[float]:
    """Move labels as little as possible so that they are ``pitch`` apart.

    Args:
        centres: Where the labels belong, in ascending order.
        pitch: Least distance between the centres of two labels.
        low: Least centre.
        high: Greatest centre; exceeded if the labels do not fit.

    Returns:
        The centres of the labels.
    """
    if not centres:
        return []
    offsets = pitch * np.arange(len(centres))
    moved = isotonic_regression(np.asarray(centres) - offsets).x
    return list(map(float, np.clip(moved, low, max(low, high - offsets[-1])) + offsets))


def page(
    title: str, lines: Sequence[str], body_inches: float, handles: Sequence[Artist] = ()
) -> Figure:
    """Make a figure with a heading at its top and a legend at its bottom.

    Axes share the room between them by constrained layout.

    Args:
        title: First line of the heading; broken where it is longer than the page is wide.
        lines: Smaller lines of the heading, broken likewise.
        body_inches: Height of the room for axes with their labels.
        handles: Entries of the legend.
    """
    figure = Figure(
        figsize=(WIDTH_INCHES, body_inches), dpi=DOTS_PER_INCH, layout=ConstrainedLayoutEngine()
    )
    room = WIDTH_INCHES - 2 * _MARGIN_INCHES
    titles = wrapped(title, room, _TITLE_POINTS, "bold")
    smaller = [part for line in lines for part in wrapped(line, room, _HEADING_POINTS)]
    heading = _MARGIN_INCHES + _TITLE_INCHES * len(titles)
    heading += _HEADING_LINE_INCHES * len(smaller) + _AFTER_HEADING_INCHES
    legend = _add_legend(figure, handles) if handles else 0.0
    height = heading + body_inches + legend
    figure.set_figheight(height)
    top = height - _MARGIN_INCHES
    for texts, points, weight, color, pitch in (
        (titles, _TITLE_POINTS, "bold", BLACK, _TITLE_INCHES),
        (smaller, _HEADING_POINTS, "normal", INK, _HEADING_LINE_INCHES),
    ):
        for text in texts:
            figure.text(
                _MARGIN_INCHES / WIDTH_INCHES,
                top / height,
                text,
                va="top",
                fontsize=points,
                fontweight=weight,
                color=color,
                in_layout=False,
            )
            top -= pitch
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(rect=(0, 0, 1, 1 - heading / height), w_pad=0.08, h_pad=0.05, hspace=0, wspace=0)
    return figure


def _add_legend(figure: Figure, handles: Sequence[Artist]) -> float:
    """Add a legend of as many columns as fit; return its height in inches."""
    room = (WIDTH_INCHES - 2 * _MARGIN_INCHES) * DOTS_PER_INCH
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(
            handles=handles,
            loc="outside lower left",
            ncols=columns,
            columnspacing=1.2,
            handletextpad=0.5,
            borderaxespad=0.3,
        )
        extent = legend.get_window_extent()
        if extent.width <= room or columns == 1:
            break
        legend.remove()
    return float(extent.height) / DOTS_PER_INCH


def legend_beside(figure: Figure) -> None:
    """Add a legend of what the axes of a page show, at their right and below the heading."""
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    height = engine.get()["rect"][3]
    margin = _MARGIN_INCHES / WIDTH_INCHES
    legend = figure.legend(
        loc="upper right",
        bbox_to_anchor=(1 - margin, height - margin),
        borderaxespad=0,
        borderpad=0,
        handlelength=2.4,
    )
    width = legend.get_window_extent().width / DOTS_PER_INCH / WIDTH_INCHES
    engine.set(rect=(0, 0, 1 - width - margin, height))


def lay_out(figure: Figure) -> None:
    """Lay out the axes, so that labels can be fitted to them."""
    figure.draw_without_rendering()


def settle(figure: Figure) -> None:
    """Lay out the axes and keep them there: no later label changes the room of others.

    The layout's last digits differ from one run to the next, and are rounded off.
    """
    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        lay_out(figure)
        figure.set_layout_engine("none")
        for axes in figure.axes:
            left, bottom, width, height = np.round(axes.get_position().bounds, 5)
            axes.set_position((left, bottom, width, height))


def size_inches(axes: Axes) -> tuple[float, float]:
    """Width and height of the inside of axes in inches, once they are laid out."""
    box = axes.get_window_extent()
    return float(box.width) / DOTS_PER_INCH, float(box.height) / DOTS_PER_INCH


def name_phase(axes: Axes, start: float, end: float, phase: str) -> None:
    """Draw a phase's name above its part of axes that are laid out, if it fits there."""
    low, high = axes.get_xlim()
    room = size_inches(axes)[0] * (end - start) / (high - low)
    if text_inches(phase, 8) > room:
        return
    axes.text(
        (start + end) / 2,
        1.01,
        phase,
        transform=axes.get_xaxis_transform(),
        ha="center",
        va="bottom",
        fontsize=8,
        color=GREY,
    )


def save(figure: Figure, path: Path) -> None:
    """Write a picture completely or not at all, in the format of the suffix.

    Raises :class:`ValueError` for a suffix other than .png and .svg, :class:`OSError` if the file
    cannot be written.
    """
    if path.suffix not in {".png", ".svg"}:
        raise ValueError(f"{path}: the name of a picture must end with .png or .svg")
    settle(figure)
    content = io.BytesIO()
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(content, format=path.suffix[1:], dpi=DOTS_PER_INCH, metadata=metadata)
    write_atomically(path, content.getvalue())

"""Parts of the page's pictures: an SVG with title and description, axes, and marks of series.

Colours come from the page's style sheet by class, so that pictures follow light, dark and print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from devices.profile import Interval
from plots.report.scale import Axis

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 408, 12, 252

COLORS = 8
_SHAPES = (
    "M-4-4H4V4H-4Z",
    "M0-5 5 4H-5Z",
    "M0-5.5 5.5 0 0 5.5-5.5 0Z",
    "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0-4.5 0Z",
    "M0 5 5-4H-5Z",
    "M-4.5-1.5H-1.5V-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5Z",
    "M-5-5 5 5M5-5-5 5",
)


@dataclass(frozen=True)
class Style:
    """Colour and shape of a series, by its number; 56 series differ in one of them."""

    number: int

    @property
    def css_class(self) -> str:
        """Class of the series' colour."""
        return f"s{self.number % COLORS}"

    @property
    def path(self) -> str:
        """Path of its mark around the origin."""
        return _SHAPES[(3 + self.number) % len(_SHAPES)]


def picture(title: str, description: str, identifier: str) -> ET.Element:
    """An SVG that a screen reader presents as one picture with title and description."""
    svg = ET.Element(
        "svg",
        {
            "viewBox": f"0 0 {WIDTH} {HEIGHT}",
            "role": "img",
            "aria-labelledby": f"{identifier}-title {identifier}-text",
            "class": "chart",
        },
    )
    ET.SubElement(svg, "title", {"id": f"{identifier}-title"}).text = title
    ET.SubElement(svg, "desc", {"id": f"{identifier}-text"}).text = description
    return svg


def swatch(style: Style) -> str:
    """A series' mark on a line, as a small picture for the legend."""
    svg = ET.Element(
        "svg", {"viewBox": "0 0 32 14", "class": f"swatch {style.css_class}", "aria-hidden": "true"}
    )
    ET.SubElement(svg, "path", {"d": "M1 7H31", "class": "line"})
    mark(svg, style, 16, 7, "mark")
    return text_of(svg)


def draw_axes(svg: ET.Element, across: Axis, up: Axis, words: tuple[str, str]) -> None:
    """Draw grid lines, tick labels and the names of both axes."""
    grid = ET.SubElement(svg, "g", {"class": "grid"})
    labels = ET.SubElement(svg, "g", {"class": "labels"})
    for value, label in across.ticks:
        x = across.at(value)
        _line(grid, (x, TOP), (x, BOTTOM))
        _text(labels, label, (x, BOTTOM + 16), "middle")
    for value, label in up.ticks:
        y = up.at(value)
        _line(grid, (LEFT, y), (RIGHT, y))
        _text(labels, label, (LEFT - 6, y + 4), "end")
    _text(labels, f"{words[0]} ({across.unit})", ((LEFT + RIGHT) / 2, HEIGHT - 10), "middle")
    name = _text(labels, f"{words[1]} ({up.unit})", (0, 0), "middle")
    name.set("transform", f"translate(13 {_n((TOP + BOTTOM) / 2)}) rotate(-90)")
    ET.SubElement(grid, "path", {"class": "frame", "d": f"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"})


def mark(parent: ET.Element, style: Style, x: float, y: float, css_class: str) -> None:
    """Draw a series' mark."""
    ET.SubElement(
        parent,
        "path",
        {"class": css_class, "d": style.path, "transform": f"translate({_n(x)} {_n(y)})"},
    )


def line(parent: ET.Element, points: Sequence[tuple[float, float]]) -> None:
    """Draw a line through points."""
    through = " ".join(f"{_n(x)} {_n(y)}" for x, y in points)
    ET.SubElement(parent, "path", {"class": "line", "d": f"M{through}"})


def bar(parent: ET.Element, x: float, up: Axis, interval: Interval) -> None:
    """Draw an interval as a vertical bar; nothing if it has no width."""
    if interval.low < interval.high:
        low, high = _n(up.at(interval.low)), _n(up.at(interval.high))
        path = f"M{_n(x)} {low}V{high}m-3 0h6M{_n(x - 3)} {low}h6"
        ET.SubElement(parent, "path", {"class": "bar", "d": path})


def bound(parent: ET.Element, x: float, y: float, from_y: float) -> None:
    """Draw a bound as a short line, joined with the figure that it bounds."""
    path = f"M{_n(x)} {_n(from_y)}V{_n(y)}m-7 0h14"
    ET.SubElement(parent, "path", {"class": "bound", "d": path})


def text_of(svg: ET.Element) -> str:
    """The picture as HTML text; every text in it is escaped."""
    return ET.tostring(svg, encoding="unicode", method="html")


def _line(parent: ET.Element, start: tuple[float, float], end: tuple[float, float]) -> None:
    ET.SubElement(
        parent, "path", {"d": f"M{_n(start[0])} {_n(start[1])}L{_n(end[0])} {_n(end[1])}"}
    )


def _text(parent: ET.Element, text: str, at: tuple[float, float], anchor: str) -> ET.Element:
    element = ET.SubElement(parent, "text", {"x": _n(at[0]), "y": _n(at[1]), "text-anchor": anchor})
    element.text = text
    return element


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

"""Parts shared by all pictures: colours safe for colour-blind readers, and units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

# Okabe and Ito (2008), without their yellow, which is too pale on white.
BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
BLUE = "#0072B2"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#7F7F7F"
PALE = "#D9E6F2"
INK = "#333333"

DOTS_PER_INCH = 150

_STYLE: Mapping[RcKeyType, Any] = {
    "font.size": 9,
    "axes.titlesize": 11,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.8,
    "svg.hashsalt": "joulewright",
}


@contextmanager
def styled() -> Iterator[None]:
    """Context manager that sets the style while a picture is drawn and saved."""
    with mpl.rc_context():
        mpl.rcParams.update(_STYLE)
        yield


def engineering(value: float, unit: str, digits: int = 3) -> str:
    """Format with an SI prefix and at least three significant digits, such as ``12.3 ms``."""
    if value == 0:
        return f"0 {unit}"
    # EngFormatter takes the number of places after the point, which depends on the digits before.
    for places in reversed(range(digits)):
        text = EngFormatter(unit=unit, places=places)(value)
        if sum(character.isdigit() for character in text) <= digits:
            return text
    return text


def binary_unit(largest_bytes: float) -> tuple[float, str]:
    """Divisor and name of the binary unit for sizes up to ``largest_bytes``."""
    for power, name in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if largest_bytes >= 1024**power:
            return 1024.0**power, name
    return 1.0, "B"


def size_text(size_bytes: float) -> str:
    """Format bytes with at least three significant digits: ``360 KiB``, ``1.25 MiB``."""
    divisor, unit = binary_unit(size_bytes)
    value = size_bytes / divisor
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def budget_key(budget_bytes: int) -> Line2D:
    """Legend entry of the RAM budget's dashed line."""
    label = f"budget {size_text(budget_bytes)}"
    return Line2D([], [], color=BLACK, linewidth=1.1, linestyle="--", label=label)


def energy_words(source: str | None) -> str:
    """Phrase on the source of the joules, for a heading."""
    match source:
        case "measured":
            return "energy measured"
        case "estimated":
            return "energy ESTIMATED (nominal power × time), not measured"
        case "emulated":
            return "EMULATED board: time and energy are not those of a real board"
        case "published":
            return "PUBLISHED figures, not measured here"
        case _:
            return "energy source not stated"

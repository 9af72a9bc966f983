"""Pictures of the report: energy against RAM, and measured against predicted time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree import ElementTree as ET

from devices.documents.readable import lower_bound, si, size
from plots.report.drawing import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Style,
    bar,
    bound,
    draw_axes,
    line,
    mark,
    picture,
    text_of,
)
from plots.report.figures import CellFigures, Figure
from plots.report.scale import byte_axis, plain_axis, quantity_axis
from plots.report.words import group_words, interval_words, percent, sources_of


@dataclass(frozen=True)
class Chart:
    """A picture as SVG text, with its heading and remarks."""

    heading: str
    svg: str
    remarks: tuple[str, ...] = ()


def energy_against_ram(
    cells: Sequence[CellFigures], styles: Mapping[str, Style]
) -> tuple[Chart, ...]:
    """Energy of a step over the RAM budget, one picture per board, condition, network and deadline.

    A group of cells with a single RAM budget has no picture. ``styles`` has one for each method.
    """
    ordered = sorted(cells, key=_group)
    groups = [list(group) for _, group in groupby(ordered, key=_group)]
    groups.sort(key=lambda group: min(each.number for each in group))
    charts: list[Chart] = []
    for group in groups:
        found = [each for each in group if each.predicted_energy is not None]
        if len({_ram_bytes(each) for each in found}) > 1:
            charts.append(_trade_off(group, found, styles, f"energy-{len(charts)}"))
    return tuple(charts)


def _group(cell: CellFigures) -> tuple[str, str, str, int, str]:
    of = cell.result.cell
    return of.board, of.condition, of.network, of.batch or 0, of.deadline


def _ram_bytes(cell: CellFigures) -> int:
    assert cell.result.solved is not None, "it has figures"
    return cell.result.solved.ram_bytes


def _trade_off(
    group: Sequence[CellFigures],
    found: Sequence[CellFigures],
    styles: Mapping[str, Style],
    identifier: str,
) -> Chart:
    figures = [
        figure
        for each in found
        for figure in (each.predicted_energy, each.measured_energy, each.bound)
        if figure is not None
    ]
    across = byte_axis([float(_ram_bytes(each)) for each in found], LEFT, RIGHT)
    ends = [end for figure in figures for end in (figure.interval.low, figure.interval.high)]
    up = quantity_axis(ends, "J", BOTTOM, TOP)
    heading = group_words(found[0].result.cell)
    svg = picture(f"Energy against RAM: {heading}", _told(found, styles), identifier)
    draw_axes(svg, across, up, ("RAM budget", f"energy of a step, {sources_of(figures)}"))
    for method, style in styles.items():
        of_method = sorted((each for each in found if _method(each) == method), key=_ram_bytes)
        if not of_method:
            continue
        series = ET.SubElement(svg, "g", {"class": style.css_class})
        points = []
        for each in of_method:
            x, energy = across.at(_ram_bytes(each)), each.predicted_energy
            assert energy is not None, "only such cells are drawn"
            y = up.at(energy.interval.median)
            points.append((x, y))
            if each.bound is not None:
                bound(series, x, up.at(each.bound.interval.median), y)
            bar(series, x, up, energy.interval)
        line(series, points)
        for x, y in points:
            mark(series, style, x, y, "mark")
        for each in of_method:
            if each.measured_energy is not None:
                x, interval = across.at(_ram_bytes(each)) + 3, each.measured_energy.interval
                bar(series, x, up, interval)
                mark(series, style, x, up.at(interval.median), "measured")
    return Chart(heading, text_of(svg), tuple(_without_schedule(group)))


def _method(cell: CellFigures) -> str:
    return cell.result.cell.method


def _told(found: Sequence[CellFigures], styles: Mapping[str, Style]) -> str:
    """The figures of a picture in words."""
    sentences = []
    for method in styles:
        parts = [
            f"{_energy(each)} at {size(_ram_bytes(each))}"
            for each in sorted(found, key=_ram_bytes)
            if _method(each) == method
        ]
        if parts:
            sentences.append(f"{method}: {', '.join(parts)}.")
    return " ".join(sentences)


def _energy(cell: CellFigures) -> str:
    assert cell.predicted_energy is not None, "only such cells are drawn"
    words = _figure(cell.predicted_energy, "J")
    if cell.measured_energy is not None:
        words += f", as run {_figure(cell.measured_energy, 'J')}"
    if cell.bound is not None:
        words += f", bound {lower_bound(cell.bound.interval.median, 'J')}"
    return words


def _figure(figure: Figure, unit: str) -> str:
    return f"{interval_words(figure.interval, unit)} {figure.source or ''}".rstrip()


def _without_schedule(group: Sequence[CellFigures]) -> list[str]:
    """Sentences that name the methods and budgets for which no schedule was found."""
    budgets: dict[str, list[str]] = {}
    for each in group:
        if each.result.state == "no schedule":
            budgets.setdefault(_method(each), []).append(each.result.cell.ram_budget)
    return [f"{method}: no schedule at {', '.join(words)}" for method, words in budgets.items()]


def measured_against_predicted(
    cells: Sequence[CellFigures], styles: Mapping[str, Style]
) -> Chart | None:
    """Difference of measured from predicted time over the predicted time, for all cells that ran.

    ``styles`` has one for each board. None if no cell ran.
    """
    ran = [each for each in cells if each.time_difference is not None]
    if not ran:
        return None
    differences = {each.number: 100 * (each.time_difference or 0.0) for each in ran}
    across = quantity_axis([_predicted_s(each) for each in ran], "s", LEFT, RIGHT)
    up = plain_axis([0.0, *differences.values()], "%", BOTTOM, TOP)
    told = "; ".join(
        f"cell {each.number}: predicted {si(_predicted_s(each), 's')},"
        f" {percent(each.time_difference or 0.0)}"
        for each in ran
    )
    svg = picture("Measured against predicted time of a step", told, "predicted")
    draw_axes(svg, across, up, ("predicted time of a step", "measured over predicted"))
    zero = up.at(0.0)
    ET.SubElement(svg, "path", {"class": "zero", "d": f"M{LEFT} {zero:.1f}H{RIGHT}"})
    for each in ran:
        style = styles[each.result.setting.name]
        series = ET.SubElement(svg, "g", {"class": style.css_class})
        x, y = across.at(_predicted_s(each)), up.at(differences[each.number])
        mark(series, style, x, y, "mark")
    return Chart("Measured against predicted time of a step", text_of(svg))


def _predicted_s(cell: CellFigures) -> float:
    assert cell.predicted_time is not None, "a difference is of both times"
    return cell.predicted_time.interval.median

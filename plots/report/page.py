"""``write_report``: the report of a campaign as one HTML file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from markupsafe import Markup

from campaigns.keeping.directory import FILE
from campaigns.keeping.results import CampaignResults, State
from devices.description import catalog_names
from devices.documents.document import read_text, write_atomically
from devices.program import COMMAND, program_version
from plots.html import page_environment, resource, source_hash
from plots.report.charts import energy_against_ram, measured_against_predicted
from plots.report.details import commands_of, commands_that_repeat, facts_of
from plots.report.drawing import Style, swatch
from plots.report.figures import CellFigures, figures_of
from plots.report.summaries import (
    asked,
    methods_side_by_side,
    methods_summary,
    prediction_table,
    problems_of,
    settings_table,
)
from plots.report.table import columns_of, factors_of, levels_of
from plots.report.timeline import columns_for
from plots.report.words import sources_of

_STATES: tuple[State, ...] = ("failed", "waiting", "no schedule", "done")


def write_report(
    results: CampaignResults,
    path: Path,
    progress: Callable[[int], None] = lambda _done: None,
) -> None:
    """Write the report of a campaign, finished or not.

    The file needs nothing else: no other file, no network, and no script for what it states. A
    script adds sorting, filters and timelines.

    Args:
        results: The campaign.
        path: HTML file to write.
        progress: Called with the number of cells that have been read.

    Raises:
        DocumentError: A file of the campaign is missing or damaged.
        InputError: A schedule states a figure that its actions do not have.
        OSError: The file cannot be written.
    """
    columns = columns_for(len(results.cells))
    cells = []
    for number, result in enumerate(results.cells, start=1):
        cells.append(figures_of(result, number, columns))
        progress(number)
    write_atomically(path, _page(results, cells))


def _page(results: CampaignResults, cells: Sequence[CellFigures]) -> str:
    methods = [method.name for method in results.design.methods]
    boards = [setting.name for setting in results.design.settings]
    method_styles = {name: Style(number) for number, name in enumerate(methods)}
    board_styles = {name: Style(number) for number, name in enumerate(boards)}
    factors = factors_of(results.cells)
    repeating = commands_that_repeat(results)
    states = Counter(result.state for result in results.cells)
    style, script = resource("plots.report", "page.css"), resource("plots.report", "page.js")
    template = page_environment("plots", "report").get_template("page.html.j2")
    return template.render(
        name=results.name,
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        program=program_version(),
        command=COMMAND,
        repeating=repeating,
        states=[(state, states[state]) for state in _STATES if states[state]],
        cells=cells,
        sources=sources_of(each.predicted_energy for each in cells),
        sources_as_run=sources_of(each.measured_energy for each in cells),
        problems=problems_of(cells),
        asked=asked(results),
        file=read_text(results.directory.path / FILE),
        settings=settings_table(cells),
        charts=energy_against_ram(cells, method_styles),
        methods=methods,
        method_marks=_marks(method_styles),
        board_marks=_marks(board_styles),
        comparison=methods_summary(cells, methods) if len(methods) > 1 else None,
        side_by_side=methods_side_by_side(cells, methods) if len(methods) > 1 else None,
        predicted_chart=measured_against_predicted(cells, board_styles),
        predictions=prediction_table(cells),
        columns=columns_of(cells),
        factors=factors,
        design=results.design,
        data=_data(results, cells, factors, repeating),
        style=Markup(style),  # noqa: S704  files of this package
        script=Markup(script),  # noqa: S704
        style_hash=source_hash(style),
        script_hash=source_hash(script),
    )


def _marks(styles: dict[str, Style]) -> list[tuple[str, Markup]]:
    return [(name, Markup(swatch(style))) for name, style in styles.items()]  # noqa: S704


def _data(
    results: CampaignResults,
    cells: Sequence[CellFigures],
    factors: Any,
    repeating: Sequence[str],
) -> dict[str, Any]:
    """What the page's script reads: levels for the filters, and the details of each cell."""
    design = results.design
    catalogued = set(catalog_names()).intersection(choice.device for choice in results.file.boards)
    return {
        "cells": [
            {
                "levels": levels_of(each.result, factors),
                "facts": facts_of(each),
                "commands": commands_of(
                    each.result,
                    design.method_by_name[each.result.cell.method],
                    design.steps,
                    catalogued,
                    repeating,
                ),
                "source": _power_source(each),
                "timeline": each.timeline.document() if each.timeline is not None else None,
            }
            for each in cells
        ]
    }


def _power_source(cell: CellFigures) -> list[str]:
    figures = (cell.predicted_energy, cell.measured_energy)
    return ["" if figure is None else figure.source or "" for figure in figures]

"""Curves of energy and time against RAM, with proven bounds, as tables and a picture.

python -m benchmarks.curves --record FOLDER [--points 6] [--limit 45] [--only NAME NAME]
    [--llama llama.pt2 --llama-profile local.yaml]
    [--write docs/benchmarks/curves.md] [--picture docs/images/curves.png]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.curves.cases import Case, built_in_cases, llama_case
from benchmarks.curves.picture import draw
from benchmarks.curves.points import Curve, Point, curve
from benchmarks.machine import solver_versions
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish
from devices.documents.readable import si, size, time_words
from solver.options import SolverOptions
from tests.support.paths import ROOT

_TEXT = """
One training step with batch 1, SGD and parameters in storage. Budgets begin at what the largest
operation in the smallest slices takes, and end at the peak of the step that keeps everything.
Everything in RAM counts, the kernels' workspace too, and every schedule has addresses in one arena.

Each network is solved whole (the Llama in slices of its output layer) and in two sizes of
[slices](../slices.md), for each budget that can hold the largest operation, for at most {limit:g} s
each on one thread. The cheapest schedule is shown, with its slices. The bound holds for schedules
in any of these slices, in any order; *gap* is how far the schedule may be above the least energy,
as a share of its own. *More* compares with the step in the largest slices that keeps everything.
Finished points are kept, so that the duration below counts only what the last run added. The points
are of {releases}.
"""
_PICTURE = """
![Energy, its proven bound and time of a training step against the RAM budget]({path})
"""


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--record", type=Path, required=True, help="folder of finished points")
    parser.add_argument("--points", type=int, default=6, help="budgets of each network")
    parser.add_argument("--limit", type=float, default=45.0, help="seconds of each solve")
    parser.add_argument("--only", nargs="*", default=[], help="networks by name (all)")
    parser.add_argument("--llama", type=Path, help="the file that docs/own-networks.md exports")
    parser.add_argument("--llama-profile", type=Path, help="measured profile of that network")
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "images" / "curves.png")
    publish("benchmarks.curves", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    options = SolverOptions(threads=1, time_limit_s=arguments.limit)
    curves = [
        curve(case, arguments.points, options, arguments.record / case.name)
        for case in _cases(arguments)
        if not arguments.only or case.name in arguments.only
    ]
    releases = sorted(frozenset[str]().union(*(each.releases for each in curves)))
    text = _TEXT.format(limit=arguments.limit, releases=" and ".join(releases))
    if arguments.write is not None:
        draw(curves, arguments.picture)
        folder = arguments.write.resolve().parent
        text += _PICTURE.format(path=os.path.relpath(arguments.picture.resolve(), folder))
    tables = [_table(each) for each in curves]
    return Page("Energy and time against RAM", text, tables, solver_versions())


def _cases(arguments: argparse.Namespace) -> Iterator[Case]:
    yield from built_in_cases()
    if arguments.llama is not None:
        yield llama_case(arguments.llama, arguments.llama_profile)


def _table(found: Curve) -> Table:
    profile = found.case.profile
    source = profile.energy_source
    head = (
        *("RAM", "of the peak", "slices", f"energy ({source})", "more", "proven bound", "gap"),
        *(time_words(source), "recomputed", "paged in", "written", "search"),
    )
    kept = found.case.forms[0].kept
    text = (
        f"Costs of `{profile.name}`, {source}. Keeping everything takes {size(kept.peak_bytes)},"
        f" {si(kept.energy_j, 'J')} and {si(kept.time_s, 's')}."
    )
    rows = [_row(found, point) for point in found.points]
    return Table(head, rows, title=found.case.name, text=text)


def _row(found: Curve, point: Point) -> tuple[str, ...]:
    ram = point.budget.ram_bytes
    of_peak = f"{100 * ram / found.case.forms[0].kept.peak_bytes:.1f} %"
    if point.best is None:
        nothing = ("–",) * 6
        return size(ram), of_peak, "–", "–", "–", si(point.bound_j, "J"), *nothing
    form, row = point.best
    energy_j, time_s = row.energy_j or 0.0, row.time_s or 0.0
    return (
        size(ram),
        of_peak,
        "none" if form.slices is None else str(form.slices),
        si(energy_j, "J"),
        f"{100 * (energy_j / found.kept_j - 1):+.2f} %",
        si(point.bound_j, "J"),
        f"{100 * (1 - point.bound_j / energy_j):.2f} %",
        si(time_s, "s"),
        str(row.recomputations),
        str(row.page_ins),
        size(row.bytes_written_to_storage or 0),
        f"{row.seconds or 0.0:.0f} s",
    )


if __name__ == "__main__":
    main()

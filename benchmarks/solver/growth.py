"""Time of ``cli.py solve`` against the size of the graph, as a table and a picture.

python -m benchmarks.solver.growth [--gap 0.01] [--limit 20] [--only NAME]
    [--write docs/benchmarks/solve-time.md] [--picture docs/images/solve-time.png]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.machine import solver_versions
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from benchmarks.solver.command import CommandRun, solve
from benchmarks.solver.graphs import FAMILIES, graph_of_name
from plots.layout import save
from plots.style import BLUE, GREEN, GREY, ORANGE, styled
from tests.support.paths import ROOT

_BUDGETS = {"layered": "80%"}
_NAMES = {
    "encoder": "transformer, m4 costs, paging",
    "resnet": "residual network, m4 costs, paging",
    "layered": "random layered, no paging",
}
_LOOKS = {"encoder": (BLUE, "o"), "resnet": (ORANGE, "s"), "layered": (GREEN, "D")}

_HEAD = ("graph", "ops", "RAM", "status", "ended by", "gap", "command", "memory")
_TEXT = """
Time of the whole command `cli.py solve`, from start-up to the written schedule, against the number
of ops. The search ends when a schedule is proven within {gap:g} % of the least energy, when its
methods have nothing left to try, or after {limit:g} s. *Ended by* is `proven` or `gap` for the
first, a dash for the second, and `time limit` for the last. RAM is a share of the peak without
recomputation and paging.

Networks have the costs of a published Cortex-M4 profile. Small graphs and residual networks with
their parameters in RAM are hard: little is left of half of the peak, so some tensors must be
recomputed more than once, which the bound does not cover.
"""
_PICTURE = """
![Seconds until a schedule is proven, against the number of ops]({path})

A filled mark is a schedule proven within the gap. An empty mark is a search that ended without one,
with the gap that is left.
"""


@dataclass(frozen=True)
class Point:
    """One graph, solved."""

    family: str
    graph: str
    ops: int
    run: CommandRun

    @property
    def optimal(self) -> bool:
        return (self.run.schedule or {}).get("status") == "optimal"

    @property
    def gap(self) -> float | None:
        return (self.run.schedule or {}).get("gap")

    @property
    def cells(self) -> tuple[str, ...]:
        schedule = self.run.schedule
        status = self.run.message if schedule is None else schedule["status"].replace("_", " ")
        gap = "–" if self.gap is None else f"{100 * self.gap:.3f} %"
        run = self.run
        budget = _budget(self.family)
        ended_by = (schedule or {}).get("ended_by", "–").replace("_", " ")
        return (self.graph, str(self.ops), budget, status, ended_by, gap, run.time, run.memory)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--limit", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument(
        "--only", default="", metavar="NAME", help="graphs whose name contains this"
    )
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="FILE",
        default=ROOT / "docs" / "images" / "solve-time.png",
        help="picture to write, with --write",
    )
    publish("benchmarks.solver.growth", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    points: list[Point] = []
    for point in _points(arguments.gap, arguments.limit, arguments.only):
        report_progress(" | ".join(point.cells))
        points.append(point)
    note = ""
    if arguments.write is not None:
        _draw(points, arguments.gap, arguments.limit, arguments.picture)
        folder = arguments.write.resolve().parent
        note = _PICTURE.format(path=os.path.relpath(arguments.picture.resolve(), folder))
    text = _TEXT.format(gap=100 * arguments.gap, limit=arguments.limit)
    table = Table(_HEAD, [point.cells for point in points], note=note)
    return Page("Solve time against the size of the graph", text, [table], solver_versions())


def _points(gap: float, limit_s: float, only: str) -> Iterator[Point]:
    with tempfile.TemporaryDirectory() as directory:
        for family, name in ((f, name) for f, names in FAMILIES.items() for name in names):
            if only not in name:
                continue
            graph = graph_of_name(name)
            path = Path(directory, f"{name}.json")
            path.write_text(graph.model_dump_json(by_alias=True, exclude_none=True))
            run = solve(path, _budget(family), limit_s, ("--gap", f"{gap:g}"))
            yield Point(family, name, len(graph.ops), run)


def _budget(family: str) -> str:
    return _BUDGETS.get(family, "50%")


def _draw(points: Sequence[Point], gap: float, limit_s: float, path: Path) -> None:
    with styled():
        drawing = Figure(figsize=(8.0, 4.5), layout="constrained")
        axes = drawing.add_subplot()
        for family in FAMILIES:
            _draw_family(axes, family, [point for point in points if point.family == family])
        axes.axhline(limit_s, linestyle=":", linewidth=1, color=GREY)
        axes.set(xscale="log", yscale="log", xlabel="ops", ylabel="seconds, whole command")
        axes.set_title(f"Time to a schedule proven within {100 * gap:g} % (filled marks)")
        axes.legend(loc="lower right")
        save(drawing, path)


def _draw_family(axes: Axes, family: str, points: Sequence[Point]) -> None:
    colour, marker = _LOOKS[family]
    axes.plot([point.ops for point in points], [p.run.seconds for p in points], color=colour)
    axes.plot([], [], color=colour, marker=marker, label=_NAMES[family])
    for point in points:
        at, face = (point.ops, point.run.seconds), colour if point.optimal else "white"
        axes.plot(*at, marker=marker, color=colour, markerfacecolor=face)
        if not point.optimal:
            left = "none" if point.gap is None else f"{100 * point.gap:.1f} %"
            axes.annotate(left, at, (4, 4), textcoords="offset points", fontsize=8)


if __name__ == "__main__":
    main()

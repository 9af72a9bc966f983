"""Schedules with and without slices for every built-in network, under half of its peak.

python -m benchmarks.solver.half [--limit 20] [--only NAME] [--write docs/benchmarks/half.md]
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, get_args

from pydantic import TypeAdapter

from benchmarks.machine import solver_versions
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from benchmarks.solver.command import CommandRun, run_solve
from devices.documents.readable import si
from devices.quantities import Slices, StatedSlices
from networks.kinds import Place
from networks.models import model_names

_HEAD = (
    "network",
    "parameters in",
    "offered",
    "kept",
    "energy without",
    "energy with",
    "ratio",
    "bound without",
    "bound with",
    "ratio",
    "gap without",
    "gap with",
    "command without",
    "command with",
    "ratio",
)
_TEXT = """
Each row is two commands, one after the other: `cli.py solve` with `--slices none`, and with what
`solve` does by itself, which is to solve the step in [slices](../slices.md) besides whole layers
where the largest operation takes more than a third of the budget. RAM is half of the peak of the
step that keeps everything; batch 1, SGD, published costs of a Cortex-M4, no codecs, {limit:g} s for
everything, {threads} threads.

*Kept* are the slices of the schedule that the second command answers with. The bound of the first
command holds for whole layers in any order, that of the second for whole layers and for the slices
that it offers: it covers more schedules, among which there may be cheaper ones. A *gap* is the
share of a schedule's energy by which its bound is lower. A ratio of energies below 1 is a better
schedule, one of bounds above 1 a tighter bound. Where nothing is offered, both commands do the
same, and the row shows how much the same search differs from run to run. Without a schedule of
whole layers there is nothing to compare; if only the second command finds none, the ratio of
energies is infinite.
"""
# Two searches of the same problem are equal up to the gap within which they are proven.
_EQUAL = 1e-3

_SLICES: TypeAdapter[Slices] = TypeAdapter(StatedSlices)


@dataclass(frozen=True)
class Row:
    """A network at half of its peak, solved without and with slices."""

    network: str
    home: Place
    without: CommandRun
    with_slices: CommandRun

    @property
    def ways(self) -> list[dict[str, Any]]:
        """Figures of whole layers and of every offered slices; empty if nothing was offered."""
        ways: list[dict[str, Any]] = (self.with_slices.schedule or {}).get("slicings", [])
        return ways

    @property
    def has_failed(self) -> bool:
        """Whether one of the commands gave no answer at all."""
        return self.without.schedule is None or self.with_slices.schedule is None

    @property
    def is_comparable(self) -> bool:
        """Whether the first command found a schedule, and the second has an answer."""
        return _energy_j(self.without) < inf and not self.has_failed

    @property
    def energy_ratio(self) -> float:
        """Infinite if only the command with slices found no schedule."""
        return _energy_j(self.with_slices) / _energy_j(self.without)

    @property
    def bound_ratio(self) -> float:
        return self._bound_with_j / _bound_j(self.without)

    @property
    def gaps(self) -> tuple[float, float]:
        """Gaps without and with slices."""
        energies = (_energy_j(self.without), _energy_j(self.with_slices))
        bounds = (_bound_j(self.without), self._bound_with_j)
        without, with_slices = (
            1 - bound_j / energy_j for bound_j, energy_j in zip(bounds, energies, strict=True)
        )
        return without, with_slices

    @property
    def time_ratio(self) -> float:
        return self.with_slices.seconds / self.without.seconds

    @property
    def _bound_with_j(self) -> float:
        schedule = self.with_slices.schedule or {}
        return float(schedule.get("bound_of_all_j", _bound_j(self.with_slices)))

    @property
    def cells(self) -> tuple[str, ...]:
        offered = [_readable(way["slices"]) for way in self.ways if "slices" in way]
        best = min(self.ways, key=lambda way: way.get("energy_j") or inf, default={})
        kept = _readable(best["slices"]) if "slices" in best else "none"
        ratios = (
            (f"{self.energy_ratio:.4f}", f"{self.bound_ratio:.4f}", f"{self.time_ratio:.2f}")
            if self.is_comparable
            else ("–", "–", "–")
        )
        return (
            *(self.network, self.home, ", ".join(offered) or "none", kept),
            *(_energy_cell(self.without), _energy_cell(self.with_slices), ratios[0]),
            *(_joules(_bound_j(self.without)), _joules(self._bound_with_j), ratios[1]),
            *(_percent(self.without, self.gaps[0]), _percent(self.with_slices, self.gaps[1])),
            *(self.without.time, self.with_slices.time, ratios[2]),
        )


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--limit", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--only", default="", metavar="NAME", help="networks with this in the name")
    publish("benchmarks.solver.half", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    rows: list[Row] = []
    for row in _rows(arguments.limit, arguments.only):
        report_progress(" | ".join(row.cells))
        rows.append(row)
    table = Table(_HEAD, [row.cells for row in rows], note=_note(rows))
    text = _TEXT.format(limit=arguments.limit, threads=os.cpu_count())
    return Page("Slices at half of the peak", text, [table], solver_versions())


def _rows(limit_s: float, only: str) -> Iterator[Row]:
    for network in model_names():
        for home in get_args(Place) if only in network else ():
            words = ("--profile", "m4", "--model", network, "--batch", "1", "--parameters-in", home)
            words += ("--ram-budget", "50%", "--time-limit", f"{limit_s:g}", "--codecs", "none")
            without = run_solve((*words, "--slices", "none"))
            yield Row(network, home, without, run_solve(words))


def _note(rows: Sequence[Row]) -> str:
    offered = [row for row in rows if row.ways]
    compared = [row for row in offered if row.is_comparable]
    failed = sum(row.has_failed for row in rows)
    failures = f" A command failed in {failed} of {len(rows)} rows." if failed else ""
    if not compared:
        return f"Slices are offered in no row in which whole layers have a schedule.{failures}"
    worse = [row for row in compared if row.energy_ratio > 1 + _EQUAL]
    looser = [row for row in compared if row.bound_ratio < 1 - _EQUAL]
    wider = [row for row in compared if row.gaps[1] > row.gaps[0] + _EQUAL]
    times = [row.time_ratio for row in compared]
    return (
        f"Slices are offered in {len(offered)} of {len(rows)} rows; in {len(compared)} of these,"
        " whole layers have a schedule, too. There the schedule is worse by more than 0.1 % in"
        f" {len(worse)}, the bound lower by more than 0.1 % in {len(looser)}, the gap wider by more"
        f" than 0.1 % of the energy in {len(wider)}, and the command"
        f" takes {statistics.median(times):.2f} times as long (median), at most {max(times):.2f}"
        f" times.{failures}"
    )


def _energy_j(run: CommandRun) -> float:
    """Energy of the answer; infinite without one."""
    return float((run.schedule or {}).get("energy_j", inf))


def _energy_cell(run: CommandRun) -> str:
    return f"failed: {run.message}" if run.schedule is None else _joules(_energy_j(run))


def _percent(run: CommandRun, gap: float) -> str:
    return f"{100 * gap:.1f} %" if _energy_j(run) < inf else "–"


def _bound_j(run: CommandRun) -> float:
    return float((run.schedule or {}).get("any_order_bound_j", 0.0))


def _readable(stated: int | str) -> str:
    return str(_SLICES.validate_python(stated))


def _joules(energy_j: float) -> str:
    return si(energy_j, "J") if 0 < energy_j < inf else "–"


if __name__ == "__main__":
    main()

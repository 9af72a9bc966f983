"""The solver's claims on small random problems, held against exhaustive search.

    python -m benchmarks.claims [--problems N] [--processes N] [--record FILE]
        [--write docs/benchmarks/claims.md]

Problems have the seeds 0 to N-1. What is done is kept in the record, from which the same command
resumes, also with a later release. Delete the record to begin anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claims.check import ROUNDING, oracle_of, refutations, solve, tightness
from benchmarks.claims.oracle import TooLarge
from benchmarks.claims.problems import KINDS, random_problem
from benchmarks.machine import package_version, release
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from devices.documents.document import StrictModel, dump_json, read_json, write_atomically
from devices.quantities import WholeNumber
from devices.user_cache import user_cache
from solver.engines.processes import kept_processes
from solver.options import SolverOptions
from solver.pools import local_pool, outcome_of
from solver.problem.schedule import Schedule

_AT_A_TIME = 200  # problems that a process solves before they are kept
# Searches rarely take longer than the short limit, and then prove little more.
_SHORT_LIMIT_S, _LONG_LIMIT_S, _LONG_EVERY = 4.0, 20.0, 25
_TEXT = """
Every problem is a random graph of three to eight ops with a budget, made from its seed alone. The
solver solves it with its defaults (one thread, addresses; 4 s, and 20 s for every 25th problem). An
exhaustive search that shares no code with solver and referee holds every claim against the truth:
energy, bounds and infeasibility (of any order, and of one order), optimality, and both sides of the
smallest RAM budget and of the shortest deadline. Problems that are *too large* for the exhaustive
search are not solved. *In part*, only some claims are examined: another one is about a budget or an
order for which that search is too large.

*Short* is how far the crossing program's bound, which holds for any order, is below the optimum,
relative to the optimum, where a schedule was found. It falls short where things must be made again
more than once.

What is solved is kept: the last section is of the last call, whose duration may be short.
"""


class Tally(StrictModel):
    """Problems of one kind: how many, how they ended, and how far bounds fell short."""

    problems: WholeNumber = 0
    too_large: WholeNumber = 0
    in_part: WholeNumber = 0
    with_schedule: WholeNumber = 0
    optimal: WholeNumber = 0
    short_sum: float = 0.0
    short_worst: float = 0.0


class Refuted(StrictModel):
    """A claim that the exhaustive search refutes, or an error of the solver."""

    seed: WholeNumber
    what: str


class Stretch(StrictModel):
    """Problems with the seeds from ``first`` up to ``following``, which one release solved."""

    release: str
    first: WholeNumber
    following: WholeNumber


class ClaimsRecord(StrictModel):
    """What was found, with the releases that solved the problems."""

    stretches: tuple[Stretch, ...]
    kinds: dict[str, Tally]
    refuted: tuple[Refuted, ...] = ()

    @property
    def following(self) -> int:
        """The first seed that is left."""
        return self.stretches[-1].following


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--problems", type=int, default=100_000, help="how many (100000)")
    parser.add_argument("--processes", type=int, default=1, help="side by side (1)")
    parser.add_argument("--record", type=Path, default=user_cache() / "claims.json")
    publish("benchmarks.claims", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    record = _resumed(arguments.record)
    firsts = range(record.following, arguments.problems, _AT_A_TIME)
    stretches = [range(first, min(first + _AT_A_TIME, arguments.problems)) for first in firsts]
    with local_pool(arguments.processes) as pool:
        for task in [pool.submit(_check_all, stretch) for stretch in stretches]:
            for one in outcome_of(task):
                record = _with(record, one)
            write_atomically(arguments.record, dump_json(record))
            report_progress(
                f"{record.following} of {arguments.problems}, {len(record.refuted)} refuted"
            )
    return _page(record)


def _resumed(path: Path) -> ClaimsRecord:
    now = release()
    if not path.exists():
        begun = Stretch(release=now, first=0, following=0)
        return ClaimsRecord(stretches=(begun,), kinds={kind: Tally() for kind in KINDS})
    record = read_json(path, ClaimsRecord)
    if record.stretches[-1].release == now:
        return record
    begun = Stretch(release=now, first=record.following, following=record.following)
    return record.model_copy(update={"stretches": (*record.stretches, begun)})


@dataclass(frozen=True)
class _Found:
    """Result of one problem."""

    seed: int
    kind: str
    refuted: tuple[str, ...] = ()
    too_large: bool = False
    in_part: bool = False
    with_schedule: bool = False
    optimal: bool = False
    short: float = 0.0


def _check_all(seeds: Sequence[int]) -> list[_Found]:
    with kept_processes():
        return [_check(seed) for seed in seeds]


def _check(seed: int) -> _Found:
    problem = random_problem(seed)
    limit_s = _SHORT_LIMIT_S if seed % _LONG_EVERY else _LONG_LIMIT_S
    options = SolverOptions(threads=1, time_limit_s=limit_s)
    oracle = oracle_of(problem)
    refuted: list[str] = []
    schedule: Schedule | None = None
    in_part, short = False, 0.0
    try:
        oracle.least_energy_j()
        schedule = solve(problem, options)
        short = tightness(problem, oracle) or 0.0
        if short < -ROUNDING:
            refuted.append(f"the crossing program's bound is above the optimum by {-short:.6%}")
        # What is refuted before another claim turns out to be too large stays in the list.
        refuted.extend(refutations(problem, oracle, schedule, options.gap))
    except TooLarge:
        if schedule is None:
            return _Found(seed, problem.kind, too_large=True)
        in_part = True
    except Exception as error:  # every error of the solver is a finding
        refuted.append(f"{type(error).__name__}: {error}")
    has_schedule = schedule is not None and bool(schedule.actions)
    return _Found(
        seed,
        problem.kind,
        refuted=tuple(refuted),
        in_part=in_part,
        with_schedule=has_schedule,
        optimal=schedule is not None and schedule.status == "optimal",
        short=max(0.0, short) if has_schedule else 0.0,
    )


def _with(record: ClaimsRecord, found: _Found) -> ClaimsRecord:
    """The record with one more problem, the one that follows."""
    tally = record.kinds[found.kind]
    counted = Tally(
        problems=tally.problems + 1,
        too_large=tally.too_large + found.too_large,
        in_part=tally.in_part + found.in_part,
        with_schedule=tally.with_schedule + found.with_schedule,
        optimal=tally.optimal + found.optimal,
        short_sum=tally.short_sum + found.short,
        short_worst=max(tally.short_worst, found.short),
    )
    now = record.stretches[-1].model_copy(update={"following": found.seed + 1})
    return ClaimsRecord(
        stretches=(*record.stretches[:-1], now),
        kinds={**record.kinds, found.kind: counted},
        refuted=(
            *record.refuted,
            *(Refuted(seed=found.seed, what=what) for what in found.refuted),
        ),
    )


def _page(record: ClaimsRecord) -> Page:
    rows = [
        (
            kind,
            f"{tally.problems:,}",
            f"{tally.too_large:,}",
            f"{tally.in_part:,}",
            f"{tally.with_schedule:,}",
            f"{tally.optimal:,}",
            f"{tally.short_sum / max(1, tally.with_schedule):.2%}",
            f"{tally.short_worst:.2%}",
        )
        for kind, tally in record.kinds.items()
    ]
    head = (
        *("kind", "problems", "too large", "in part", "with a schedule", "optimal"),
        *("short, mean", "worst"),
    )
    stretches = [
        (f"{one.first:,} to {one.following - 1:,}", one.release)
        for one in record.stretches
        if one.following > one.first
    ]
    claims = [(str(one.seed), one.what) for one in record.refuted] or [("none", "")]
    return Page(
        "Claims against exhaustive search",
        _TEXT,
        (
            Table(head, tuple(rows)),
            Table(("refuted: seed", "claim"), tuple(claims)),
            Table(("seeds", "solved by"), tuple(stretches)),
        ),
        (f"python-mip {package_version('mip')}", f"HiGHS {package_version('highspy')}"),
    )


if __name__ == "__main__":
    main()

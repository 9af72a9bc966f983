"""The solver's claims on small random problems, held against exhaustive search.

    python -m benchmarks.claims [--problems N] [--record FILE] [--write docs/benchmarks/claims.md]

Problems have the seeds 0 to N-1. What is done is kept in the record, from which the same command
resumes; a record of another release is begun anew.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.claims.check import refutations, solve, tightness
from benchmarks.claims.oracle import TooLarge
from benchmarks.claims.problems import KINDS, random_problem
from benchmarks.machine import package_version, release
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from devices.documents.document import StrictModel, dump_json, read_json, write_atomically
from devices.quantities import WholeNumber
from devices.user_cache import user_cache
from solver.options import SolverOptions

_KEPT_EVERY_S = 10.0
_OPTIONS = SolverOptions(threads=1, time_limit_s=20.0)
_TEXT = """
Every problem is a random graph of three to eight ops with a budget, made from its seed alone. The
solver solves it with its defaults (one thread, 20 s, addresses). An exhaustive search that shares
no code with solver and referee holds every claim against the truth: energy, bounds, optimality,
infeasibility, and both sides of the smallest RAM budget and of the shortest deadline. Problems that
are too large for the exhaustive search count for nothing.

*Short* is how far the crossing program's bound, which holds for any order, is below the optimum,
relative to the optimum.
"""


class Tally(StrictModel):
    """Problems of one kind: how many, how they ended, and how far bounds fell short."""

    problems: WholeNumber = 0
    too_large: WholeNumber = 0
    with_schedule: WholeNumber = 0
    optimal: WholeNumber = 0
    short_sum: float = 0.0
    short_worst: float = 0.0


class Refuted(StrictModel):
    """A claim that the exhaustive search refutes, or an error of the solver."""

    seed: WholeNumber
    what: str


class ClaimsRecord(StrictModel):
    """The problems with seeds below ``following``."""

    release: str
    following: WholeNumber = 0
    kinds: dict[str, Tally]
    refuted: tuple[Refuted, ...] = ()


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--problems", type=int, default=100_000, help="how many (100000)")
    parser.add_argument("--record", type=Path, default=user_cache() / "claims.json")
    publish("benchmarks.claims", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    record = _resumed(arguments.record)
    kept = time.monotonic()
    for seed in range(record.following, arguments.problems):
        record = _checked(record, seed)
        if time.monotonic() - kept > _KEPT_EVERY_S or seed + 1 == arguments.problems:
            write_atomically(arguments.record, dump_json(record))
            report_progress(f"{seed + 1} of {arguments.problems}, {len(record.refuted)} refuted")
            kept = time.monotonic()
    return _page(record)


def _resumed(path: Path) -> ClaimsRecord:
    fresh = ClaimsRecord(release=release(), kinds={kind: Tally() for kind in KINDS})
    if not path.exists():
        return fresh
    record = read_json(path, ClaimsRecord)
    return record if record.release == fresh.release else fresh


def _checked(record: ClaimsRecord, seed: int) -> ClaimsRecord:
    problem = random_problem(seed)
    tally = record.kinds[problem.kind]
    refuted = list(record.refuted)
    try:
        schedule = solve(problem, _OPTIONS)
        refuted += [
            Refuted(seed=seed, what=what) for what in refutations(problem, schedule, _OPTIONS.gap)
        ]
        short = tightness(problem)
    except TooLarge:
        changes: dict[str, object] = {"too_large": tally.too_large + 1}
    except Exception as error:  # every error of the solver is a finding
        refuted.append(Refuted(seed=seed, what=f"{type(error).__name__}: {error}"))
        changes = {}
    else:
        changes = {
            "with_schedule": tally.with_schedule + bool(schedule.actions),
            "optimal": tally.optimal + (schedule.status == "optimal"),
            "short_sum": tally.short_sum + (short or 0.0),
            "short_worst": max(tally.short_worst, short or 0.0),
        }
    changes["problems"] = tally.problems + 1
    return record.model_copy(
        update={
            "following": seed + 1,
            "kinds": {**record.kinds, problem.kind: tally.model_copy(update=changes)},
            "refuted": tuple(refuted),
        }
    )


def _page(record: ClaimsRecord) -> Page:
    rows = [
        (
            kind,
            f"{tally.problems:,}",
            f"{tally.too_large:,}",
            f"{tally.with_schedule:,}",
            f"{tally.optimal:,}",
            f"{tally.short_sum / max(1, tally.with_schedule):.2%}",
            f"{tally.short_worst:.2%}",
        )
        for kind, tally in record.kinds.items()
    ]
    head = ("kind", "problems", "too large", "with a schedule", "optimal", "short, mean", "worst")
    claims = [(str(one.seed), one.what) for one in record.refuted] or [("none", "")]
    return Page(
        "Claims against exhaustive search",
        _TEXT,
        (Table(head, tuple(rows)), Table(("refuted: seed", "claim"), tuple(claims))),
        (f"python-mip {package_version('mip')}", f"HiGHS {package_version('highspy')}"),
    )


if __name__ == "__main__":
    main()

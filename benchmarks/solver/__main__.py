"""Targets of the solver, and the published methods on the same problems.

    python -m benchmarks.solver [--moccasin FOLDER] [--only NAME] [--peers-limit SECONDS]
        [--no-peers] [--write docs/benchmarks/solver.md]

One row of the first table is one ``cli.py solve`` with its default options and the time limit of
the target. The other tables have every method on the same problems under the same referee.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.machine import solver_versions
from benchmarks.pages import Page
from benchmarks.publish import command_line, publish, report_progress
from benchmarks.solver.asked import Answer, answer_table, answers
from benchmarks.solver.cases import cases
from benchmarks.solver.peers import Comparison, comparison_tables, comparisons

_TEXT = """
The solver on published problems and on problems of our own: first what is asked of it, then the
published methods on the same problems. Every schedule is replayed by the same referee.
"""


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--moccasin", type=Path, metavar="FOLDER", help="Moccasin's graphs")
    parser.add_argument("--only", default="", metavar="NAME", help="cases whose name contains this")
    parser.add_argument(
        "--peers-limit", type=float, default=10.0, metavar="SECONDS", help="for each other method"
    )
    parser.add_argument("--no-peers", action="store_true", help="leave out the published methods")
    publish("benchmarks.solver", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    chosen = [case for case in cases(arguments.moccasin) if arguments.only in case.name]
    found: list[Answer] = []
    compared: list[Comparison] = []
    with tempfile.TemporaryDirectory() as directory:
        for answer in answers(chosen, Path(directory)):
            report_progress(" | ".join(answer.cells))
            found.append(answer)
        limit_s = arguments.peers_limit
        for comparison in (
            [] if arguments.no_peers else comparisons(chosen, Path(directory), limit_s)
        ):
            report_progress(f"{comparison.problem}, {comparison.budget}: every method has run")
            compared.append(comparison)
    tables = [answer_table(found, moccasin=arguments.moccasin is not None)]
    if compared:
        tables += comparison_tables(compared, limit_s)
    return Page("How fast and how good the solver is", _TEXT, tables, solver_versions())


if __name__ == "__main__":
    main()

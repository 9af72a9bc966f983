"""The solver held against what is asked of it, and against the published methods.

    python -m benchmarks.solver [--moccasin FOLDER] [--only NAME] [--out FILE.md]
        [--peers-limit SECONDS] [--no-peers]

Each row of the first table is one command, ``cli.py solve`` with its default options and the time
limit that is asked. The second table has every method on the same problems under the same referee,
with at most ``--peers-limit`` seconds each.
"""

from __future__ import annotations

import argparse
import datetime
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.machine import machine_line
from benchmarks.solver.cases import Case, cases
from benchmarks.solver.command import Ran, solve
from benchmarks.solver.graphs import graph_of_name
from devices.documents.document import read_json, write_atomically
from solver.baselines.registry import BASELINES, run_baseline
from solver.constructed import keep_everything
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.quantities import parse_deadline_s, parse_ram_bytes
from solver.problem.schedule import Budget
from solver.referee.referee import replay

# POET's program has some 6 n² columns: beyond this many ops there is no point in writing it down.
_MOST_POET_OPS = 250
_FORMULATIONS = ("poet", "compact", "retention")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moccasin", type=Path, help="folder with its graphs")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--out", type=Path, help="where to write the Markdown as well")
    parser.add_argument("--peers-limit", type=float, default=30.0)
    parser.add_argument("--no-peers", action="store_true")
    arguments = parser.parse_args()
    chosen = [case for case in cases(arguments.moccasin) if arguments.only in case.name]
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        for line in _report(chosen, Path(directory), arguments):
            print(line, flush=True)
            lines.append(line)
            if arguments.out is not None:
                write_atomically(arguments.out, "\n".join(lines) + "\n")


def _report(chosen: list[Case], directory: Path, arguments: argparse.Namespace) -> Iterator[str]:
    yield f"{datetime.date.today()}, {machine_line()}"
    yield ""
    yield (
        "| problem | RAM | deadline | order | asked | over least compute | proven gap | bound for"
        " | command | memory | reached |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for case in chosen:
        ran = solve(_file(case, directory), case.budget, case.seconds, _options(case))
        yield _row(case, ran, _graph(case, directory))
    if arguments.no_peers:
        return
    yield ""
    names = ["ours", *_FORMULATIONS, *BASELINES]
    yield f"| problem | RAM | {' | '.join(names)} |"
    yield "|---|---|" + "---|" * len(names)
    seen: set[tuple[str, str, str | None]] = set()
    for case in chosen:
        key = (case.name, case.budget, case.deadline)
        if key not in seen:
            seen.add(key)
            yield _peers(case, directory, arguments.peers_limit)


def _options(case: Case) -> list[str]:
    return [*case.options, *(("--deadline", case.deadline) if case.deadline else ())]


def _file(case: Case, directory: Path) -> Path:
    if isinstance(case.graph, Path):
        return case.graph
    path = directory / f"{case.graph}.json"
    if not path.exists():
        graph = graph_of_name(case.graph)
        path.write_text(graph.model_dump_json(by_alias=True, exclude_none=True))
    return path


def _graph(case: Case, directory: Path) -> CostedGraph:
    return read_json(_file(case, directory), CostedGraph)


def _row(case: Case, ran: Ran, graph: CostedGraph) -> str:
    cells = [case.name, case.budget, case.deadline or "–", case.order, case.asked]
    schedule = ran.schedule
    overhead = _over(schedule["energy_j"], graph) if schedule and "energy_j" in schedule else None
    if schedule is None:
        cells += ["–", "–", ran.said]
    elif schedule["status"] == "infeasible":
        cells += ["infeasible, proven", "–", f"smallest: {schedule['smallest_ram_bytes']} bytes"]
    elif overhead is None:
        cells += [schedule["status"], "–", "–"]
    else:
        covers = "this order" if schedule.get("restrictions") else "any order"
        cells += [f"{100 * overhead:+.4f} %", f"{100 * schedule['gap']:.4f} %", covers]
    reached = False
    if schedule is not None and ran.seconds <= case.seconds * 1.05:
        if schedule["status"] == "infeasible":
            reached = True
        elif overhead is not None:
            reached = _reaches(overhead if case.overhead else schedule["gap"], case.target)
    cells += [f"{ran.seconds:.1f} s", f"{ran.most_bytes / 2**20:.0f} MiB"]
    return f"| {' | '.join([*cells, 'yes' if reached else 'no'])} |"


def _reaches(figure: float, target: float) -> bool:
    """In per cent, to as many places as the target has, one at least: published figures are
    rounded."""
    places = len(f"{100 * target:g}".partition(".")[2])
    return target == float("inf") or round(100 * figure, max(1, places)) <= 100 * target


def _over(energy_j: float, graph: CostedGraph) -> float:
    least_j = sum(op.energy_j for op in graph.ops)
    return energy_j / least_j - 1 if least_j else 0.0


def _peers(case: Case, directory: Path, limit_s: float) -> str:
    graph, path = _graph(case, directory), _file(case, directory)
    kept = replay(graph, keep_everything(graph))
    budget = Budget(
        ram_bytes=parse_ram_bytes(case.budget, kept.peak_bytes),
        deadline_s=None if case.deadline is None else parse_deadline_s(case.deadline, kept.time_s),
    )
    deadline = ("--deadline", case.deadline) if case.deadline else ()
    cells = []
    for name in ("auto", *_FORMULATIONS):
        if name == "poet" and len(graph.ops) > _MOST_POET_OPS:
            cells.append("too large")
            continue
        ran = solve(path, case.budget, limit_s, ("--formulation", name, *deadline))
        cells.append(_cell(ran, graph))
    problem = Problem(graph, budget)
    for name in BASELINES:
        began = time.monotonic()
        result = run_baseline(name, problem, limit_s)
        seconds = time.monotonic() - began
        if result.actions is None:
            cells.append(f"none, {seconds:.0f} s")
            continue
        energy_j = replay(graph, result.actions).energy_j
        cells.append(f"{100 * _over(energy_j, graph):+.3f} %, {seconds:.0f} s")
    name = case.name if case.deadline is None else f"{case.name}, {case.deadline}"
    return f"| {name} | {case.budget} | {' | '.join(cells)} |"


def _cell(ran: Ran, graph: CostedGraph) -> str:
    schedule = ran.schedule
    if schedule is None:
        return f"{ran.said}, {ran.seconds:.0f} s"
    if "energy_j" not in schedule:
        return f"{schedule['status'].replace('_', ' ')}, {ran.seconds:.0f} s"
    proven = "*" if schedule["status"] == "optimal" else ""
    return f"{100 * _over(schedule['energy_j'], graph):+.3f} %{proven}, {ran.seconds:.0f} s"


if __name__ == "__main__":
    main()

"""How long ``cli.py solve --graph`` takes on scheduling problems, as single commands: start-up,
reading and verification included.

    python -m benchmarks.solve_instances [--engine highs] [--deadline 1.5x] [GRAPH.json ...]

Without graphs, those in ``benchmarks/instances``. Writes a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import machine_line

ROOT = Path(__file__).parent.parent
BUDGETS = ("80%", "50%")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", type=Path)
    parser.add_argument("--engine", default="highs")
    parser.add_argument("--deadline")
    parser.add_argument("--time-limit", default="300")
    arguments = parser.parse_args()
    graphs = arguments.graphs or sorted((ROOT / "benchmarks" / "instances").glob("*.json"))
    print(machine_line())
    print(f"\n`cli.py --help`: {_start_up_s():.3f} s (median of 9)\n")
    print("| instance | budget | status | over least compute | proven gap | command | build |")
    print("|---|---|---|---|---|---|---|")
    for graph in graphs:
        for budget in BUDGETS:
            print(_row(graph, budget, arguments), flush=True)


def _start_up_s() -> float:
    def once() -> float:
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "cli.py", "--help"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
        return time.monotonic() - began

    return statistics.median(once() for _ in range(9))


def _row(graph: Path, budget: str, arguments: argparse.Namespace) -> str:
    options = ["--engine", arguments.engine, "--time-limit", arguments.time_limit]
    if arguments.deadline:
        options += ["--deadline", arguments.deadline]
    with tempfile.TemporaryDirectory() as directory:
        command = [
            *(sys.executable, "cli.py", "solve", "--json", "--graph", str(graph.absolute())),
            *("--ram-budget", budget, "--out", f"{directory}/schedule.json", *options),
        ]
        began = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
    if not done.stdout:
        return f"| {graph.stem} | {budget} | exit {done.returncode} | | | {seconds:.1f} s | |"
    schedule = json.loads(done.stdout)
    if schedule["status"] == "infeasible":
        smallest = f"infeasible (smallest: {schedule['smallest_ram_bytes']} bytes)"
        return f"| {graph.stem} | {budget} | {smallest} | | | {seconds:.1f} s | |"
    least_j = sum(op["energy_j"] for op in json.loads(graph.read_text())["ops"])
    over = f"{100 * (schedule['energy_j'] / least_j - 1):+.3f} %" if "energy_j" in schedule else ""
    gap = f"{100 * schedule['gap']:.3f} %" if "gap" in schedule else ""
    build = f"{schedule['solver']['build_seconds']:.2f} s"
    return (
        f"| {graph.stem} | {budget} | {schedule['status']} | {over} | {gap} | {seconds:.1f} s"
        f" | {build} |"
    )


if __name__ == "__main__":
    main()

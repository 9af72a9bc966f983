"""How long ``cli.py solve`` takes against the size of the graph, as a picture.

    python -m benchmarks.solver.growth [--gap 0.01] [--limit 60] [--out docs/images/solve-time.png]

Half of the unconstrained peak, random graphs four fifths of it. A filled mark is proven within the
gap; an empty one ended at the time limit, with the gap that stands beside it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.machine import machine_line
from benchmarks.solver.command import ROOT, Ran, solve
from benchmarks.solver.graphs import FAMILIES, graph_of_name
from plots.style import BLUE, GREEN, GREY, ORANGE, save, styled

_BUDGETS = {"layered": "80%"}
_NAMES = {
    "encoder": "transformer, m4 costs, paging",
    "resnet": "residual network, m4 costs, paging",
    "layered": "random layered, no paging",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gap", default="0.01")
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "solve-time.png")
    arguments = parser.parse_args()
    print(f"{machine_line()}\n\n| graph | ops | status | gap | command | memory |", flush=True)
    print("|---|---|---|---|---|---|", flush=True)
    measured: dict[str, list[tuple[int, Ran]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for family, names in FAMILIES.items():
            for name in names:
                graph = graph_of_name(name)
                path = Path(directory, f"{name}.json")
                path.write_text(graph.model_dump_json(by_alias=True, exclude_none=True))
                budget = _BUDGETS.get(family, "50%")
                ran = solve(path, budget, arguments.limit, ("--gap", arguments.gap))
                measured.setdefault(family, []).append((len(graph.ops), ran))
                print(_row(name, len(graph.ops), ran), flush=True)
    _draw(measured, arguments.gap, arguments.limit, arguments.out)


def _row(name: str, ops: int, ran: Ran) -> str:
    schedule: dict[str, Any] = ran.schedule or {"status": ran.said}
    gap = f"{100 * schedule['gap']:.3f} %" if "gap" in schedule else "–"
    memory = f"{ran.most_bytes / 2**20:.0f} MiB"
    return f"| {name} | {ops} | {schedule['status']} | {gap} | {ran.seconds:.1f} s | {memory} |"


def _draw(measured: dict[str, list[tuple[int, Ran]]], gap: str, limit_s: float, path: Path) -> None:
    looks = zip((BLUE, ORANGE, GREEN), "osD", strict=True)
    with styled():
        drawing = Figure(figsize=(8.0, 4.5), layout="constrained")
        axes = drawing.add_subplot()
        for (family, points), (colour, marker) in zip(measured.items(), looks, strict=True):
            sizes = [ops for ops, _ in points]
            seconds = [ran.seconds for _, ran in points]
            axes.plot(sizes, seconds, color=colour)
            axes.plot([], [], color=colour, marker=marker, label=_NAMES[family])
            for ops, ran in points:
                schedule = ran.schedule or {}
                proven = schedule.get("status") == "optimal"
                face = colour if proven else "white"
                axes.plot(ops, ran.seconds, marker=marker, color=colour, markerfacecolor=face)
                if not proven:
                    said = f"{100 * schedule['gap']:.1f} %" if "gap" in schedule else "none"
                    axes.annotate(
                        said, (ops, ran.seconds), (4, 4), textcoords="offset points", fontsize=8
                    )
        axes.axhline(limit_s, linestyle=":", linewidth=1, color=GREY)
        axes.set(xscale="log", yscale="log", xlabel="ops", ylabel="seconds, whole command")
        axes.set_title(f"Time to a schedule proven within {100 * float(gap):g} % (filled marks)")
        axes.legend(loc="lower right")
        save(drawing, path)


if __name__ == "__main__":
    main()

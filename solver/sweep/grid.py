"""Budgets × deadlines as people write them, and the budgets of baselines beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from solver.baselines.registry import BASELINES
from solver.constructed import keep_everything
from solver.options import Coverage
from solver.problem.graph import CostedGraph
from solver.problem.quantities import QuantityError, parse_deadline_s, parse_ram_bytes
from solver.problem.schedule import Budget
from solver.referee.referee import replay

_RANGE = re.compile(r"(?P<first>.+)\.\.(?P<last>.+)/\s*(?P<count>\d+)\s*")


def budget_grid(
    graph: CostedGraph, ram_budgets: str, deadlines: str, covers: Coverage
) -> tuple[Budget, ...]:
    """Every RAM budget with every deadline, each once, ascending. ``ram_budgets`` are separated by
    commas: what ``parse_ram_bytes`` reads, or a range ``20%..100%/9`` of
    so many evenly spaced ones; so are ``deadlines``, ``none`` being one that never comes.

    Raises :class:`~solver.problem.quantities.QuantityError`.
    """
    kept = replay(graph, keep_everything(graph), covers)
    sizes = {
        ram_bytes for word in ram_budgets.split(",") for ram_bytes in _sizes(word, kept.peak_bytes)
    }
    ends = {_deadline_s(word.strip(), kept.time_s) for word in deadlines.split(",")}
    return tuple(
        Budget(ram_bytes=ram_bytes, covers=covers, deadline_s=deadline_s)
        for deadline_s in sorted(ends, key=lambda end: (end is None, end or 0.0))
        for ram_bytes in sorted(sizes)
    )


def baseline_grid(graph: CostedGraph, grid: Sequence[Budget]) -> list[tuple[str, Budget]]:
    """Every baseline, by name, under every RAM budget of ``grid`` and under what keeping everything
    takes, with the most patient deadline: most of them know of none."""
    patient = grid[-1]
    peak_bytes = replay(graph, keep_everything(graph), patient.covers).peak_bytes
    sizes = sorted({peak_bytes, *(budget.ram_bytes for budget in grid)})
    budgets = [patient.model_copy(update={"ram_bytes": ram_bytes}) for ram_bytes in sizes]
    return [(name, budget) for name in BASELINES for budget in budgets]


def _sizes(word: str, peak_bytes: int) -> list[int]:
    spread = _RANGE.fullmatch(word)
    if spread is None:
        return [parse_ram_bytes(word, peak_bytes)]
    first, last = (parse_ram_bytes(spread[end], peak_bytes) for end in ("first", "last"))
    count = int(spread["count"])
    if count < 2 or first >= last:
        raise QuantityError(
            f"{word!r} is not a range of RAM budgets: it needs a smaller and a larger one and a"
            " number of at least 2, such as 20%..100%/9"
        )
    return [first + (last - first) * i // (count - 1) for i in range(count)]


def _deadline_s(word: str, step_s: float) -> float | None:
    if word == "none":
        return None
    try:
        return parse_deadline_s(word, step_s)
    except QuantityError as error:
        raise QuantityError(f"{error}, or none") from None

"""Grids of RAM budgets and deadlines as text, and the budgets of baselines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from solver.baselines.names import BASELINE_NAMES
from solver.constructed import keep_everything
from solver.options import Coverage
from solver.problem.graph import CostedGraph
from solver.problem.quantities import QuantityError, parse_deadline_s, parse_ram_bytes
from solver.problem.schedule import Budget
from solver.referee.referee import replay

MOST_IN_RANGE = 1000
"""Most RAM budgets of one range; each is a search, and the baselines besides."""

_RANGE = re.compile(r"(?P<first>.+)\.\.(?P<last>.+)/\s*(?P<count>[0-9]{1,18})\s*")


def budget_grid(
    graph: CostedGraph, ram_budgets: str, deadlines: str, covers: Coverage
) -> tuple[Budget, ...]:
    """Parse a grid: every RAM budget with every deadline.

    Args:
        graph: The costed graph, whose unconstrained peak and time percentages and multiples refer
            to.
        ram_budgets: RAM budgets separated by commas: each as for ``parse_ram_bytes``, or a range
            such as ``20%..100%/9``, which is 9 evenly spaced budgets; at most
            :data:`MOST_IN_RANGE`.
        deadlines: Deadlines separated by commas: each as for ``parse_deadline_s``, or ``none``.
        covers: Tensors that the budgets count.

    Returns:
        The budgets, each once, sorted by deadline, then RAM.

    Raises:
        QuantityError: A budget, range or deadline cannot be parsed.
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
    """Pair every baseline with every RAM budget of a grid.

    The unconstrained peak is added to the budgets. The deadline is the longest of the grid, since
    most baselines do not take deadlines into account.

    Args:
        graph: The costed graph.
        grid: Budgets from :func:`budget_grid`.

    Returns:
        Names of baselines with budgets.
    """
    patient = grid[-1]
    peak_bytes = replay(graph, keep_everything(graph), patient.covers).peak_bytes
    sizes = sorted({peak_bytes, *(budget.ram_bytes for budget in grid)})
    budgets = [patient.model_copy(update={"ram_bytes": ram_bytes}) for ram_bytes in sizes]
    return [(name, budget) for name in BASELINE_NAMES for budget in budgets]


def _sizes(word: str, peak_bytes: int) -> list[int]:
    spread = _RANGE.fullmatch(word)
    if spread is None:
        return [parse_ram_bytes(word, peak_bytes)]
    first, last = (parse_ram_bytes(spread[end], peak_bytes) for end in ("first", "last"))
    count = int(spread["count"])
    if count > MOST_IN_RANGE:
        raise QuantityError(
            f"{word!r} are {count} RAM budgets: a range may have at most {MOST_IN_RANGE}, such as"
            f" {spread['first']}..{spread['last']}/{MOST_IN_RANGE}"
        )
    if count < 2 or first >= last:
        raise QuantityError(
            f"{word!r} is not a range of RAM budgets: give a smaller and a larger budget and a"
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

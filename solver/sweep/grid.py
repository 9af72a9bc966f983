"""Budgets × deadlines as people write them."""

from __future__ import annotations

import re

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

"""Slices that ``solve --slices auto`` offers to the solver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from commands.console import Console
from commands.solve.subject import SolveSubject
from devices.documents.readable import size
from networks.training.slicing import sliced
from solver.costing.costing import CostingError, cost_graph
from solver.problem.footprint import least_ram_bytes
from solver.problem.schedule import Budget

_SHARES = (4, 8, 16, 32)
"""Parts of a weight have this part of the budget, at most."""
_MOST_OFFERED = 2


def with_slices(
    subjects: Iterable[SolveSubject], budget: Budget, console: Console
) -> tuple[SolveSubject, ...]:
    """Replace each step of which an operation is larger than the budget by the same step in slices.

    Of slices of a quarter of the budget, an eighth, a sixteenth and a thirty-second, the two
    largest are offered for which each operation fits. Without any, the step stays as it is.
    """
    return tuple(found for subject in subjects for found in _offered(subject, budget, console))


def _offered(subject: SolveSubject, budget: Budget, console: Console) -> Iterator[SolveSubject]:
    needed, what = least_ram_bytes(subject.graph, budget.covers)
    if needed <= budget.ram_bytes or subject.step is None or subject.slices is not None:
        yield subject
        return
    found: list[SolveSubject] = []
    for share in _SHARES:
        smaller = None if len(found) == _MOST_OFFERED else _sliced(subject, budget, share)
        if smaller is not None and smaller.graph.ops not in [each.graph.ops for each in found]:
            found.append(smaller)
    if not found:
        yield subject
        return
    sizes = " and ".join(size(each.slices or 0) for each in found)
    console.say(
        f"no schedule of whole layers fits into {size(budget.ram_bytes)}: {what} takes"
        f" {size(needed)}; large weights are in slices of {sizes} (docs/slices.md)"
    )
    yield from found


def _sliced(subject: SolveSubject, budget: Budget, share: int) -> SolveSubject | None:
    """The step in slices; None if no schedule of it can fit, or its costs are not known."""
    assert subject.step is not None
    assert subject.profile is not None
    if budget.ram_bytes < share:
        return None
    step = sliced(subject.step, budget.ram_bytes // share)
    try:
        costing = cost_graph(step, subject.profile, strict=subject.strict)
    except CostingError:
        return None
    if least_ram_bytes(costing.graph, budget.covers)[0] > budget.ram_bytes:
        return None
    return replace(subject, graph=costing.graph, predicted=costing.predicted, step=step)

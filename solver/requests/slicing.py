"""Slices that are offered to the solver where no schedule of whole layers can fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from devices.documents.readable import size
from devices.quantities import Slices
from networks.training.codecs import with_codecs
from networks.training.network import NetworkError
from networks.training.slicing import sliced
from solver.costing.costing import CostingError
from solver.problem.footprint import least_ram_bytes
from solver.problem.schedule import Budget
from solver.requests.subjects import SolveSubject

_SHARES = (4, 8, 16, 32)
"""Parts of a weight, or of an activation, have this part of the budget, at most."""
_MOST_OFFERED = 2


def with_slices(
    subjects: Iterable[SolveSubject], budget: Budget, say: Callable[[str], None]
) -> tuple[SolveSubject, ...]:
    """Replace each step of which an operation is larger than the budget by the same step in slices.

    It is left out where the same step with codecs fits.

    Of slices of a quarter of the budget, an eighth, a sixteenth and a thirty-second, the two
    largest are offered for which each operation fits. If none are small enough while activations
    are whole, activations are in parts of the same sizes. Without any, the step stays as it is.
    """
    given = tuple(subjects)
    fitting = {each.parts for each in given if _needed(each, budget)[0] <= budget.ram_bytes}
    return tuple(
        found
        for subject in given
        if _needed(subject, budget)[0] <= budget.ram_bytes or subject.parts not in fitting
        for found in _offered(subject, budget, say)
    )


def _needed(subject: SolveSubject, budget: Budget) -> tuple[int, str]:
    """Bytes that an operation needs at least, and its name."""
    return least_ram_bytes(subject.graph, budget.covers)


def _offered(
    subject: SolveSubject, budget: Budget, say: Callable[[str], None]
) -> Iterator[SolveSubject]:
    needed, what = _needed(subject, budget)
    if needed <= budget.ram_bytes or subject.step is None or subject.slices is not None:
        yield subject
        return
    found: list[SolveSubject] = []
    sizes = [budget.ram_bytes // share for share in _SHARES if budget.ram_bytes >= share]
    for of_size in (Slices, _of_all):
        for each in () if found else sizes:
            is_enough = len(found) == _MOST_OFFERED
            smaller = None if is_enough else _sliced(subject, budget, of_size(each))
            known = [other.graph.ops for other in found]
            if smaller is not None and smaller.graph.ops not in known:
                found.append(smaller)
    if not found:
        yield subject
        return
    offered = " and ".join(str(each.slices) for each in found)
    say(
        f"no schedule of whole layers fits into {size(budget.ram_bytes)}: {what} takes"
        f" {size(needed)}; large layers are in slices of {offered} (docs/slices.md)"
    )
    yield from found


def _of_all(size_bytes: int) -> Slices:
    """Slices of weights and activations."""
    return Slices(size_bytes, size_bytes)


def _sliced(subject: SolveSubject, budget: Budget, slices: Slices) -> SolveSubject | None:
    """The step in slices; None if it cannot fit, has too many operations, or costs are unknown."""
    assert subject.step is not None
    try:
        step = sliced(subject.step.whole or subject.step, slices)
        found = subject.with_step(with_codecs(step) if subject.codecs else step)
    except (CostingError, NetworkError):
        return None
    fits = least_ram_bytes(found.graph, budget.covers)[0] <= budget.ram_bytes
    return found if fits else None

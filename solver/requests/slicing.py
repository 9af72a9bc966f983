"""Slices that are offered to the solver.

Where no schedule of whole layers can fit, slices take their place. Where whole layers fit, but the
largest operation takes much of the RAM, slices are solved besides: much is recomputed or paged
around that operation, and its parts leave room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from devices.documents.readable import size
from devices.quantities import Slices
from networks.training.codecs import with_codecs
from networks.training.network import NetworkError
from networks.training.slicing import sliced
from solver.constructed import keep_everything
from solver.constructed.greedy import greedy_schedule
from solver.costing.costing import CostingError
from solver.costing.uncosted import uncosted_graph
from solver.problem.footprint import least_ram_bytes
from solver.problem.problem import Problem
from solver.problem.schedule import Budget
from solver.referee.referee import replay
from solver.requests.subjects import SolveSubject, say_untried
from solver.time_limit import NO_LIMIT, OutOfTime, TimeLimit, check_time

_SHARES = (4, 8, 16, 32)
"""Parts of a weight, or of an activation, have this part of the budget, at most."""
_MOST_OFFERED = 2

_MUCH = 1 / 3
"""Share of the budget that an operation of a whole layer takes if slices are solved besides;
docs/slices.md has the evidence."""
_OF_LARGEST = 4
"""Parts of a weight, and of an activation, then have this part of that operation, at most."""
_MOST_TIMES = 2
"""The search in slices would take much longer with more than so many times the operations."""


def with_slices(
    subjects: Iterable[SolveSubject],
    budget: Budget,
    say: Callable[[str], None],
    limit: TimeLimit = NO_LIMIT,
    *,
    compare_costs: bool = True,
) -> tuple[SolveSubject, ...]:
    """Replace each step that needs slices by the same step in slices, or add them to it.

    A step of which an operation is larger than the budget is replaced by the same step in slices,
    and left out where the same step with codecs fits. Of slices of a quarter of the budget, an
    eighth, a sixteenth and a thirty-second, the two largest are offered for which each operation
    fits. If none are small enough while activations are whole, activations are in parts of the same
    sizes. Without any, the step stays as it is.

    After a step whose largest operation takes more than a third of the budget, the step in slices
    of a quarter of that operation is added, with codecs if these are offered too. It is not added
    if it has more than twice the operations, if it cannot need less energy, if the step keeps
    everything, if the number of parts of the batch is searched as well, if its values may differ in
    the last bits, by a BLAS, or if whole layers were measured and parts not.

    Without ``compare_costs``, slices are added whatever they cost: sizes alone decide. Those that
    are not ready when the limit passes are left out, which is said, but for the first with which
    something fits.
    """
    given = tuple(subjects)
    fits = [_needed(each, budget)[0] <= budget.ram_bytes for each in given]
    fitting = [each for each, is_fitting in zip(given, fits, strict=True) if is_fitting]
    parts = {each.parts for each in fitting}
    found: list[SolveSubject] = []
    untried: list[SolveSubject] = []
    has_any = bool(fitting)
    for subject, is_fitting in zip(given, fits, strict=True):
        if is_fitting:
            found.append(subject)
        elif subject.parts not in parts:
            instead, is_late = _instead(subject, budget, say, limit, has_any=has_any)
            found.extend(instead)
            untried.extend([subject] * is_late)
            has_any = has_any or any(each is not subject for each in instead)
    if fitting and len({each.parts for each in given}) == 1:
        try:
            with limit.enforced():
                found.extend(_besides(fitting[-1], budget, say, compare_costs=compare_costs))
        except OutOfTime:
            untried.append(fitting[-1])
    say_untried(say, "further slices", untried)
    return tuple(found)


def _needed(subject: SolveSubject, budget: Budget) -> tuple[int, str]:
    """Bytes that an operation needs at least, and its name."""
    return least_ram_bytes(subject.graph, budget.covers)


def _instead(
    subject: SolveSubject,
    budget: Budget,
    say: Callable[[str], None],
    limit: TimeLimit,
    *,
    has_any: bool,
) -> tuple[list[SolveSubject], bool]:
    """The step in slices, or itself without any that fit, and whether the limit left some out.

    The limit holds as soon as something fits, which another step does if it ``has_any``.
    """
    if subject.step is None or subject.slices is not None:
        return [subject], False
    found: list[SolveSubject] = []
    is_late = False
    sizes = [budget.ram_bytes // share for share in _SHARES if budget.ram_bytes >= share]
    for of_size in (Slices, _of_all):
        for each in () if found else sizes:
            if is_late or len(found) == _MOST_OFFERED:
                break
            try:
                with (limit if has_any or found else NO_LIMIT).enforced():
                    smaller = _sliced(subject, budget, of_size(each))
            except OutOfTime:
                is_late = True
                break
            known = [other.graph.ops for other in found]
            if smaller is not None and smaller.graph.ops not in known:
                found.append(smaller)
    if not found:
        return [] if is_late else [subject], is_late
    needed, what = _needed(subject, budget)
    offered = " and ".join(str(each.slices) for each in found)
    say(
        f"no schedule of whole layers fits into {size(budget.ram_bytes)}: {what} takes"
        f" {size(needed)}; large layers are in slices of {offered} (docs/slices.md)"
    )
    return found, is_late


def _besides(
    subject: SolveSubject, budget: Budget, say: Callable[[str], None], *, compare_costs: bool
) -> Iterator[SolveSubject]:
    """Slices of a step that fits whole, if their largest operation is smaller."""
    needed, what = _needed(subject, budget)
    is_small = needed <= _MUCH * budget.ram_bytes
    if subject.step is None or subject.slices is not None or is_small:
        return
    build = None if subject.profile is None else subject.profile.build
    kept = replay(subject.graph, keep_everything(subject.graph), budget.covers)
    if kept.peak_bytes <= budget.ram_bytes or not (build is None or build.parts_keep_bits):
        return
    slices = _of_all(max(1, needed // _OF_LARGEST))
    found = _sliced(subject, budget, slices)
    if found is None or _needed(found, budget)[0] >= needed:
        return
    if len(found.graph.ops) > _MOST_TIMES * len(subject.graph.ops):
        return
    if compare_costs and _cannot_pay(found, subject, budget):
        return
    if found.predicted and not subject.predicted:
        say(
            f"{what} takes {size(needed)} of {size(budget.ram_bytes)}: slices may need less energy,"
            f" but they were not measured; 'profile --slices {slices.stated}' measures them"
            " (docs/slices.md)"
        )
        return
    say(
        f"whole layers fit into {size(budget.ram_bytes)}, of which {what} takes {size(needed)};"
        f" large layers are solved in slices of {slices} besides (docs/slices.md)"
    )
    yield found


def _cannot_pay(found: SolveSubject, whole: SolveSubject, budget: Budget) -> bool:
    """Whether whole layers surely need no more energy than slices.

    They do if a schedule of whole layers that greedy search finds needs no more than each op in
    slices, once, with the unavoidable transfers.
    """
    actions = greedy_schedule(Problem(whole.graph, budget), thorough=False)
    if actions is None:
        return False
    needed_j = Problem(found.graph, budget).unavoidable_energy_j
    return needed_j >= replay(whole.graph, actions, budget.covers).energy_j


def _of_all(size_bytes: int) -> Slices:
    """Slices of weights and activations."""
    return Slices(size_bytes, size_bytes)


def _sliced(subject: SolveSubject, budget: Budget, slices: Slices) -> SolveSubject | None:
    """The step in slices; None if it cannot fit, has too many operations, or costs are unknown."""
    assert subject.step is not None
    check_time()
    try:
        step = sliced(subject.step.whole or subject.step, slices)
        step = with_codecs(step) if subject.codecs else step
        # Costs take the longest, and what does not fit without workspaces needs none.
        if least_ram_bytes(uncosted_graph(step), budget.covers)[0] > budget.ram_bytes:
            return None
        found = subject.with_step(step)
    except (CostingError, NetworkError):
        return None
    return found if _needed(found, budget)[0] <= budget.ram_bytes else None

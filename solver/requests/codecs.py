"""Codecs, which are offered to the solver beside the step without them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from networks.training.codecs import kept_bytes, with_codecs
from solver.costing.costing import CostingError
from solver.problem.schedule import Budget
from solver.requests.subjects import SolveSubject

_LEAST_SHARE = 0.01


def with_offered_codecs(
    subjects: Iterable[SolveSubject], budget: Budget
) -> tuple[SolveSubject, ...]:
    """Add each step with codecs after the same step without them.

    Codecs are left out where the activations that the backward pass reads become smaller by less
    than 1 % of the RAM budget, and where the profile does not tell what they cost.
    """
    return tuple(found for subject in subjects for found in _offered(subject, budget))


def _offered(subject: SolveSubject, budget: Budget) -> Iterator[SolveSubject]:
    yield subject
    if subject.step is None:
        return
    step = with_codecs(subject.step)
    if kept_bytes(subject.step) - kept_bytes(step) < max(1, _LEAST_SHARE * budget.ram_bytes):
        return
    try:
        yield subject.with_step(step)
    except CostingError:
        return

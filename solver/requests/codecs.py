"""Codecs, which are offered to the solver beside the step without them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from networks.training.codecs import kept_bytes, with_codecs
from solver.costing.costing import CostingError
from solver.problem.schedule import Budget
from solver.requests.subjects import SolveSubject, say_untried
from solver.time_limit import NO_LIMIT, OutOfTime, TimeLimit

_LEAST_SHARE = 0.01


def with_offered_codecs(
    subjects: Iterable[SolveSubject],
    budget: Budget,
    say: Callable[[str], None] = lambda _sentence: None,
    limit: TimeLimit = NO_LIMIT,
) -> tuple[SolveSubject, ...]:
    """Add each step with codecs after the same step without them.

    Codecs are left out where the activations that the backward pass reads become smaller by less
    than 1 % of the RAM budget, and where the profile does not tell what they cost. They are left
    out as well if the limit passes before they are ready, which is said.
    """
    found: list[SolveSubject] = []
    untried: list[SolveSubject] = []
    for subject in subjects:
        found.append(subject)
        try:
            with limit.enforced():
                found.extend(_coded(subject, budget))
        except OutOfTime:
            untried.append(subject)
    say_untried(say, "codecs", untried)
    return tuple(found)


def _coded(subject: SolveSubject, budget: Budget) -> Iterator[SolveSubject]:
    """The step with codecs, if these are worth it."""
    if subject.step is None:
        return
    step = with_codecs(subject.step)
    if kept_bytes(subject.step) - kept_bytes(step) < max(1, _LEAST_SHARE * budget.ram_bytes):
        return
    with suppress(CostingError):
        yield subject.with_step(step)

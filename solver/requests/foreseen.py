"""Slices that ``solve`` offers by itself on a board, before the board is measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from devices.published import load_published
from devices.quantities import Slices
from networks.training.step import TrainingStep
from solver.costing.costing import cost_graph
from solver.problem.footprint import least_ram_bytes
from solver.problem.schedule import Budget
from solver.requests.codecs import with_offered_codecs
from solver.requests.slicing import with_slices
from solver.requests.subjects import SolveSubject

_MICROCONTROLLER = "m4"
"""Published profile whose kernels have the small tiles of every microcontroller. Its costs do not
matter: slices are chosen by sizes alone."""


def foreseen_slices(steps: Iterable[TrainingStep], ram_bytes: int) -> tuple[Slices | None, ...]:
    """Find how ``solve`` will cut the layers of a step in all the RAM of a microcontroller.

    Args:
        steps: The same step, for each home that its parameters may have.
        ram_bytes: The board's RAM for training.

    Returns:
        Slices, each once; None for whole layers, which come first. Empty if the step does not fit,
        in whatever slices.
    """
    budget = Budget(ram_bytes=ram_bytes)
    found = dict.fromkeys(slices for step in steps for slices in _offered(step, budget))
    return tuple(sorted(found, key=lambda slices: slices is not None))


def _unsaid(_sentence: str) -> None:
    pass


def _offered(step: TrainingStep, budget: Budget) -> Iterator[Slices | None]:
    """Slices in which the step fits that are offered for it, without and with codecs."""
    profile = load_published(_MICROCONTROLLER)
    plain = (SolveSubject(cost_graph(step, profile).graph, profile, step=step),)
    for asked in (plain, with_offered_codecs(plain, budget)):
        for subject in with_slices(asked, budget, _unsaid, compare_costs=False):
            if least_ram_bytes(subject.graph)[0] <= budget.ram_bytes:
                yield subject.slices

"""Recomputation and paging that the crossing program permits before the deadline."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from solver.formulations.crossing import CrossingProgram
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Budget
from tests.support.graphs.graph_examples import graph, op, tensor

COMPUTING_S = 5.0
UNAVOIDABLE_S = 0.5
"""Time of paging in ``w``, which has its home in storage."""
AGAIN_S, PAGED_S = 1.0, 8.0
"""Times of recomputing ``f``, and of paging ``a`` out and in."""


def training(*, dma: bool) -> CostedGraph:
    made = graph(
        [
            op("f", "w", "a"),
            op("g", "a", "b"),
            op("loss", "b", "c"),
            op("gb", "b c", "d"),
            op("ga", "a d", "e"),
        ],
        [
            tensor("w", 1, home="storage", page_in=(UNAVOIDABLE_S, 1.0)),
            tensor("a", 6, page_out=(3.0, 2.0), page_in=(5.0, 3.0)),
            *(tensor(name, 2) for name in "bcd"),
            tensor("e", 1, persist="ram"),
        ],
    )
    return made.model_copy(update={"asynchronous_transfers": dma})


@dataclass(frozen=True)
class Paging:
    """How transfers count: serially, beside computing, or not at all."""

    dma: bool = False
    processor_share: float | None = None
    instantaneous: bool = False

    def allows(self, deadline_s: float, *, again: bool = False, paged: bool = False) -> bool:
        budget = Budget(
            ram_bytes=100, deadline_s=deadline_s, instantaneous_paging=self.instantaneous
        )
        shared = {"processor_share": self.processor_share}
        graph = training(dma=self.dma).model_copy(update=shared)
        crossing = CrossingProgram(Problem(graph, budget), "any")
        values = [0.0] * len(crossing.program.cost)
        values[crossing.again[0]] = float(again)
        values[crossing.paged[1]] = float(paged)
        return crossing.program.satisfied_by(values)


SERIAL, BESIDE, INSTANT = Paging(), Paging(dma=True), Paging(instantaneous=True)
SHARED = Paging(dma=True, processor_share=0.5)


@pytest.mark.parametrize(
    ("paging", "again", "paged", "needed_s"),
    [
        (SERIAL, False, False, COMPUTING_S + UNAVOIDABLE_S),
        (SERIAL, True, False, COMPUTING_S + UNAVOIDABLE_S + AGAIN_S),
        (SERIAL, False, True, COMPUTING_S + UNAVOIDABLE_S + PAGED_S),
        (SERIAL, True, True, COMPUTING_S + UNAVOIDABLE_S + AGAIN_S + PAGED_S),
        (BESIDE, False, False, COMPUTING_S),
        (BESIDE, True, False, COMPUTING_S + AGAIN_S),
        (BESIDE, False, True, UNAVOIDABLE_S + PAGED_S),
        (BESIDE, True, True, UNAVOIDABLE_S + PAGED_S),
        (SHARED, False, False, COMPUTING_S + UNAVOIDABLE_S / 2),
        (SHARED, True, False, COMPUTING_S + AGAIN_S + UNAVOIDABLE_S / 2),
        (SHARED, False, True, COMPUTING_S + (UNAVOIDABLE_S + PAGED_S) / 2),
        (INSTANT, False, False, COMPUTING_S),
        (INSTANT, True, False, COMPUTING_S + AGAIN_S),
        (INSTANT, False, True, COMPUTING_S),
    ],
)
def test_recomputation_and_paging_must_end_before_the_deadline(
    paging: Paging, again: bool, paged: bool, needed_s: float
) -> None:
    assert paging.allows(needed_s, again=again, paged=paged)
    assert paging.allows(needed_s + 100.0, again=again, paged=paged)
    assert not paging.allows(needed_s - 0.01, again=again, paged=paged)


def test_no_solution_with_a_deadline_of_zero() -> None:
    assert not SERIAL.allows(0.0)

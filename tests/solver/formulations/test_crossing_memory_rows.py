"""Choice of the ops for which the crossing program adds memory rows, given its last solution."""

from __future__ import annotations

import time

import numpy as np
import pytest

from solver.formulations.crossing import CrossingProgram
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Budget
from solver.search.crossing_search import CrossingSearch, Proven
from tests.support.graphs.graph_examples import crossed_chain, graph, op, tensor

LOSS, GB = 2, 3
"""Ops of :func:`crossed_chain` during which ``a`` crosses, with 11 and 13 bytes in RAM."""


def program(costed: CostedGraph, ram_bytes: int) -> CrossingProgram:
    return CrossingProgram(Problem(costed, Budget(ram_bytes=ram_bytes)), "any")


def values(crossing: CrossingProgram, *, again: float = 0.0, paged: float = 0.0) -> list[float]:
    """A solution that recomputes ``f`` ``again`` times and pages ``a`` ``paged`` times."""
    found = [0.0] * len(crossing.program.cost)
    found[crossing.again[0]] = again
    found[crossing.paged[1]] = paged
    return found


def training(length: int) -> CostedGraph:
    """Forward ops in a chain, and their backward ops in reverse; sizes differ."""
    forward = [op(f"f{k}", f"a{k - 1}" if k else "x", f"a{k}") for k in range(length)]
    backward = [
        op(f"b{k}", f"a{k}" + (f" g{k + 1}" if k + 1 < length else ""), f"g{k}")
        for k in reversed(range(length))
    ]
    sizes = [1 + 7 * k % 5 for k in range(length)]
    return graph(
        [*forward, *backward],
        [
            tensor("x", 1, home="ram"),
            *(tensor(f"a{k}", size) for k, size in enumerate(sizes)),
            *(tensor(f"g{k}", size) for k, size in enumerate(sizes)),
        ],
    )


def test_memory_rows_start_at_the_op_with_the_largest_excess() -> None:
    crossing = program(crossed_chain(), 9)
    assert crossing.crossing(LOSS) == crossing.crossing(GB) == [1]
    assert crossing.tightest(values(crossing), 8) == [GB]
    crossing.add_memory_rows(GB)
    assert crossing.tightest(values(crossing), 8) == [LOSS]
    crossing.add_memory_rows(LOSS)
    assert crossing.tightest(values(crossing), 8) == []


@pytest.mark.parametrize("ram_bytes", [13, 14])
def test_ops_that_fit_exactly_get_no_memory_rows(ram_bytes: int) -> None:
    crossing = program(crossed_chain(), ram_bytes)
    assert crossing.tightest(values(crossing), 8) == []


@pytest.mark.parametrize(
    ("again", "paged", "expected"),
    [
        (1.0, 0.0, []),
        (0.0, 1.0, []),
        (0.5, 0.0, [GB]),
        (0.0, 0.5, [GB]),
        (0.5, 0.5, []),
        (0.7, 0.0, []),  # 7 bytes, and 0.3 of a's 6: 8.8 in all
        (1.0, 1.0, []),
    ],
)
def test_recomputed_or_paged_share_of_a_tensor_needs_no_ram(
    again: float, paged: float, expected: list[int]
) -> None:
    crossing = program(crossed_chain(), 9)
    assert crossing.tightest(values(crossing, again=again, paged=paged), 8) == expected


@pytest.mark.parametrize(("length", "apart"), [(15, 1), (60, 3), (200, 10)])
def test_ops_chosen_together_are_few_and_far_apart(length: int, apart: int) -> None:
    costed = training(length)
    crossing = program(costed, 20)
    problem = crossing.problem
    excess = np.array(
        [
            sum(problem.size[i] for i in {*problem.reads[t], *problem.writes[t]})
            + sum(problem.size[i] for i in crossing.crossing(t))
            for t in range(len(costed.ops))
        ]
    )
    nothing = [0.0] * len(crossing.program.cost)
    chosen = crossing.tightest(nothing, 8)
    assert crossing.tightest(nothing, 1) == chosen[:1]
    assert chosen[0] == int(np.argmax(excess))
    assert len(chosen) == 8 or length == 15
    assert list(excess[chosen]) == sorted(excess[chosen], reverse=True)
    assert all(abs(s - t) > apart for k, s in enumerate(chosen) for t in chosen[:k])
    # No op at a sufficient distance would have been a better choice.
    others = (t for t in range(len(excess)) if all(abs(t - s) > apart for s in chosen))
    assert all(excess[t] <= max(20, excess[chosen].min()) for t in others)


def test_search_has_a_bound_before_an_engine_and_with_memory_rows_at_one_op() -> None:
    """A step of many ops has bounds long before the relaxation with rows at every tight op."""
    problem = Problem(training(60), Budget(ram_bytes=20))
    search = CrossingSearch(problem, "any", "highs", threads=1)
    rows_at, bounds, proofs = [], [], []
    for news in search.run(1e-6, time.monotonic() + 60):
        if isinstance(news, Proven):
            rows_at.append(len(search.crossing.moments))
            bounds.append(news.bound_j)
            proofs.append(news.proof)
    assert rows_at[:2] == [0, 1]
    assert rows_at[-1] > 1
    assert proofs[0] is None
    assert None not in proofs[1:]
    assert problem.least_energy_j < bounds[0] < max(bounds)


def test_tensor_outside_the_budget_crosses_no_op() -> None:
    costed = graph(
        [op("f", "w", "a"), op("loss", "a", "c"), op("back", "c w", "g"), op("last", "g a", "e")],
        [
            tensor("w", 5, kind="parameter", home="ram", persist="ram"),
            *(tensor(name, 2) for name in "ac"),
            tensor("g", 2, kind="gradient"),
            tensor("e", 1, persist="ram"),
        ],
    )
    for covers, crossed in (("all", [0]), ("activations", [])):
        budget = Budget.model_validate({"ram_bytes": 100, "covers": covers})
        assert CrossingProgram(Problem(costed, budget), "any").crossing(1) == crossed


def test_no_solution_without_ram() -> None:
    crossing = program(crossed_chain(), 0)
    assert crossing.tightest(values(crossing), 8) == [GB, 1]
    crossing.add_memory_rows(GB)
    assert not crossing.program.satisfied_by([1.0] * len(crossing.program.cost))


def test_bound_is_never_below_the_unavoidable_energy() -> None:
    crossing = program(crossed_chain(), 9)
    assert crossing.bound_j(-1.0) == crossing.bound_j(0.0) == 16.0
    assert crossing.bound_j(2.0) - crossing.bound_j(1.0) == pytest.approx(crossing.unit)

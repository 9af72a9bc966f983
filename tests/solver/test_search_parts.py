"""Schedules encoded as solutions of the compact program, and which of them a search prefers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.constructed import keep_everything, page_everything
from solver.constructed.greedy import greedy_schedule
from solver.formulations.compact.formulation import CompactFormulation
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph, Op, PageCost, Tensor
from solver.problem.problem import Problem
from solver.problem.schedule import Budget
from solver.referee.referee import replay, verify
from solver.search.search import Search
from tests.support.graphs.graph_examples import graph as make_graph
from tests.support.graphs.graph_examples import op, tensor
from tests.support.graphs.graph_strategies import examples, small_graphs


@pytest.mark.slow
@given(graph=small_graphs(), ram_bytes=st.integers(4, 24), simplify=st.booleans())
@examples(100)
def test_a_schedule_survives_being_written_as_a_solution(
    graph: CostedGraph, ram_bytes: int, simplify: bool
) -> None:
    budget = Budget(ram_bytes=ram_bytes)
    problem = Problem(graph, budget)
    actions = greedy_schedule(problem)
    if actions is None:
        return
    compact = CompactFormulation(problem, simplify=simplify)
    values = compact.encode(actions)
    if values is not None:
        again = verify(graph, compact.decode(values), budget)
        assert again.energy_j == pytest.approx(verify(graph, actions, budget).energy_j)
        energy_j = compact.costs.value(compact.program.objective(values))
        assert energy_j == pytest.approx(again.energy_j)


def test_a_schedule_over_budget_is_no_solution() -> None:
    graph = _chain(6)
    everything = keep_everything(graph)
    peak_bytes = replay(graph, everything).peak_bytes
    roomy = CompactFormulation(Problem(graph, Budget(ram_bytes=peak_bytes)))
    tight = CompactFormulation(Problem(graph, Budget(ram_bytes=peak_bytes - 1)))
    assert roomy.encode(everything) is not None
    assert tight.encode(everything) is None


def test_of_two_peaks_the_smaller_is_better_however_large_both_are() -> None:
    """Five bytes more of 2 GB are worth no byte that is written less."""
    graph = make_graph(
        [op("make", "", "a"), op("large", "", "b", workspace_bytes=2 * 10**9), op("use", "a", "c")],
        [tensor("a", 5, page_out=(1, 1), page_in=(1, 1)), tensor("b", 0), tensor("c", 0)],
    )
    problem = Problem(graph, Budget(ram_bytes=3 * 10**9))
    search = Search(problem, "memory", SolverOptions())
    search.offer(page_everything(problem))
    search.offer(keep_everything(graph))
    assert search.value == 2 * 10**9


def _chain(length: int) -> CostedGraph:
    """Forward ops that each read the previous one's result, and their backward ops in reverse."""
    page = PageCost(time_s=1.0, energy_j=3.0)
    names = [f"a{k}" for k in range(length)]

    def op(name: str, reads: tuple[str, ...]) -> Op:
        return Op(
            name=f"make {name}",
            kind="test",
            phase="forward",
            reads=reads,
            writes=(name,),
            time_s=1.0,
            energy_j=1.0,
        )

    forward = [op(name, (names[k - 1],) if k else ()) for k, name in enumerate(names)]
    gradients = [f"g{k}" for k in reversed(range(length))]
    backward = [
        op(name, (names[length - 1 - k], *gradients[k - 1 : k])) for k, name in enumerate(gradients)
    ]
    tensors = [
        Tensor(name=name, bytes=10, kind="activation", page_out=page, page_in=page)
        for name in (*names, *gradients)
    ]
    return CostedGraph(name="chain", ops=(*forward, *backward), tensors=tuple(tensors))

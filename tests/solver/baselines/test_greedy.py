"""Greedy schedules: they are valid, and take the obviously best choice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.constructed import keep_everything
from solver.constructed.greedy import greedy_schedule
from solver.problem.graph import CostedGraph, Op, PageCost, Tensor
from solver.problem.problem import Problem
from solver.problem.schedule import Budget, Compute, PageOut
from solver.referee.referee import replay, verify
from tests.support.graphs.graph_strategies import examples, small_graphs


@pytest.mark.slow
@given(
    graph=small_graphs(),
    ram_bytes=st.integers(4, 24),
    paging=st.booleans(),
    rematerialization=st.booleans(),
    slack_s=st.sampled_from([None, 2.0]),
)
@examples(100)
def test_greedy_schedule_is_within_the_budget(
    graph: CostedGraph,
    ram_bytes: int,
    paging: bool,
    rematerialization: bool,
    slack_s: float | None,
) -> None:
    budget = Budget(
        ram_bytes=ram_bytes,
        paging=paging,
        rematerialization=rematerialization,
        deadline_s=None if slack_s is None else len(graph.ops) + slack_s,
    )
    actions = greedy_schedule(Problem(graph, budget))
    if actions is not None:
        verify(graph, actions, budget)


@pytest.mark.slow
@given(graph=small_graphs())
@examples(50)
def test_greedy_keeps_everything_if_it_fits(graph: CostedGraph) -> None:
    everything = replay(graph, keep_everything(graph))
    actions = greedy_schedule(Problem(graph, Budget(ram_bytes=everything.peak_bytes)))
    assert actions is not None
    assert replay(graph, actions).energy_j == pytest.approx(everything.energy_j)


def test_greedy_recomputes_or_pages_whichever_is_cheaper() -> None:
    assert _restored_by(op_energy_j=1.0) == "recomputation"
    assert _restored_by(op_energy_j=9.0) == "paging"


def _restored_by(op_energy_j: float) -> str:
    """``a`` is read by the second op and the last; in between ``b`` and ``c`` need its room."""

    def op(name: str, reads: tuple[str, ...], energy_j: float = 1.0) -> Op:
        return Op(
            name=f"make {name}",
            kind="test",
            phase="forward",
            reads=reads,
            writes=(name,),
            time_s=1.0,
            energy_j=energy_j,
        )

    page = PageCost(time_s=1.0, energy_j=2.0)
    graph = CostedGraph(
        name="detour",
        ops=(op("a", (), op_energy_j), op("b", ("a",)), op("c", ("b",)), op("d", ("c", "a"))),
        tensors=tuple(
            Tensor(name=name, bytes=10, kind="activation", page_out=page, page_in=page)
            if name == "a"
            else Tensor(name=name, bytes=2 if name == "d" else 10, kind="activation")
            for name in "abcd"
        ),
    )
    actions = greedy_schedule(Problem(graph, Budget(ram_bytes=22)))
    assert actions is not None
    if any(isinstance(action, PageOut) for action in actions):
        return "paging"
    assert sum(isinstance(action, Compute) for action in actions) == len(graph.ops) + 1
    return "recomputation"


def test_chains_of_recomputations_that_are_too_deep_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Evictions may join chains. Here one op leaves no room for any of 400 others' results."""
    monkeypatch.setattr("solver.constructed.greedy._LONGEST_CHAIN", 500)
    count = 400
    ops = [_op(f"f{k}", f"a{k - 1}" if k else "", f"a{k}") for k in range(count)]
    last = f"a{count - 1}"
    ops += [_op("g", last, "b"), _op("h", "b", "c", workspace_bytes=18), _op("i", f"c {last}", "d")]
    chained = [Tensor(name=f"a{k}", bytes=10, kind="activation") for k in range(count)]
    others = [Tensor(name=name, bytes=1, kind="activation") for name in "bcd"]
    chain = CostedGraph(name="chain", ops=tuple(ops), tensors=(*chained, *others))
    assert greedy_schedule(Problem(chain, Budget(ram_bytes=21, paging=False))) is None


def _op(name: str, reads: str, writes: str, workspace_bytes: int = 0) -> Op:
    return Op(
        name=name,
        kind="test",
        phase="forward",
        reads=tuple(reads.split()),
        writes=(writes,),
        time_s=1.0,
        energy_j=1.0,
        workspace_bytes=workspace_bytes,
    )

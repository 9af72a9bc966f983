"""The compact formulation against exhaustive search, and what a user sees of a solve."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solver.engine import EngineName
from solver.graph import CostedGraph
from solver.options import SolverOptions
from solver.referee import replay, verify
from solver.schedule import Budget
from solver.solving import solve_graph
from tests.graph_strategies import least_energy_by_exhaustion, small_graphs

EXACT = SolverOptions(gap=0.0, threads=1)


@given(
    graph=small_graphs(),
    ram_bytes=st.integers(4, 24),
    paging=st.booleans(),
    rematerialization=st.booleans(),
    slack_s=st.sampled_from([None, 2.0, 4.0]),
)
@settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
def test_compact_finds_the_optimum_of_every_small_graph(
    graph: CostedGraph,
    ram_bytes: int,
    paging: bool,
    rematerialization: bool,
    slack_s: float | None,
) -> None:
    deadline_s = None if slack_s is None else len(graph.ops) + slack_s
    budget = Budget(
        ram_bytes=ram_bytes,
        paging=paging,
        rematerialization=rematerialization,
        deadline_s=deadline_s,
    )
    least_j = least_energy_by_exhaustion(graph, budget)
    schedule = solve_graph(graph, budget, EXACT)
    if least_j is None:
        assert schedule.status == "infeasible"
    else:
        assert schedule.status == "optimal"
        assert schedule.energy_j == pytest.approx(least_j)
        assert verify(graph, schedule.steps, budget).energy_j == schedule.energy_j

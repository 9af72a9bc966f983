"""Schedules that fit as a sum of bytes fit an arena, once tensors are paged out of the way."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.published import load_published
from devices.quantities import Slices
from networks.models import build_model
from solver.addresses.eviction import evict_into_arena
from solver.addresses.plan import with_addresses
from solver.constructed import keep_everything, page_everything
from solver.constructed.greedy import greedy_schedule
from solver.costing.costing import cost_graph
from solver.problem.footprint import least_ram_bytes
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget
from solver.referee.addresses import verify_addresses
from solver.referee.referee import verify
from tests.support.graphs.graph_strategies import examples, small_graphs, tight_problems


def grows_in_place(graph: CostedGraph) -> bool:
    """Whether any op writes a tensor in place of a smaller one."""
    sizes = {tensor.name: tensor.bytes for tensor in graph.tensors}
    pairs = [pair for op in graph.ops for pair in op.in_place.items()]
    return any(sizes[written] > sizes[over] > 0 for written, over in pairs)


def energy_j(problem: Problem, actions: tuple[Action, ...], seconds: float = 0.0) -> float:
    """Energy of the schedule once it is made to fit, verified by both referees; inf if it is not.

    ``seconds`` are those of the search.
    """
    found = evict_into_arena(problem, actions, time.monotonic() + seconds)
    if found is None:
        return math.inf
    changed, plan = found
    result = verify(problem.graph, changed, problem.budget)
    placed = with_addresses(changed, plan)
    arena_bytes = problem.budget.ram_bytes
    assert plan.arena_bytes <= arena_bytes
    verify_addresses(problem.graph, placed, plan.resident_address, arena_bytes, "all")
    return result.energy_j


@pytest.mark.slow
def test_what_is_made_to_fit_is_a_valid_schedule() -> None:
    fitted = 0

    @given(case=tight_problems())
    @examples(100)
    def fit(case: tuple[CostedGraph, Budget]) -> None:
        nonlocal fitted
        graph, budget = case
        problem = Problem(graph, budget.model_copy(update={"covers": "all", "deadline_s": None}))
        actions = greedy_schedule(problem, thorough=False)
        if actions is not None:
            fitted += energy_j(problem, actions) < math.inf

    fit()
    assert fitted > 50


@pytest.mark.slow
def test_a_search_finds_valid_schedules_that_take_no_more() -> None:
    fitted = 0

    @given(case=tight_problems())
    @examples(100)
    def search(case: tuple[CostedGraph, Budget]) -> None:
        nonlocal fitted
        graph, budget = case
        problem = Problem(graph, budget.model_copy(update={"covers": "all", "deadline_s": None}))
        actions = greedy_schedule(problem, thorough=False)
        if actions is not None:
            at_once = energy_j(problem, actions)
            assert energy_j(problem, actions, seconds=0.01) <= at_once * (1 + 1e-9)
            fitted += at_once < math.inf

    search()
    assert fitted > 50


@pytest.mark.slow
def test_addresses_are_aligned_whatever_the_budget() -> None:
    """Of sizes that are multiples of four, in an arena whose size is none."""
    fitted = 0

    @given(case=tight_problems(), rest=st.integers(0, 3))
    @examples(100)
    def align(case: tuple[CostedGraph, Budget], rest: int) -> None:
        nonlocal fitted
        graph, budget = case
        tensors = [each.model_copy(update={"bytes": 4 * each.bytes}) for each in graph.tensors]
        ops = [
            each.model_copy(update={"workspace_bytes": 4 * each.workspace_bytes})
            for each in graph.ops
        ]
        words = graph.model_copy(update={"tensors": tuple(tensors), "ops": tuple(ops)})
        problem = Problem(words, Budget(ram_bytes=4 * budget.ram_bytes + rest))
        actions = greedy_schedule(problem, thorough=False)
        until = time.monotonic() + 0.01
        found = None if actions is None else evict_into_arena(problem, actions, until)
        if found is not None:
            fitted += 1
            assert [offset % 4 for offset in found[1].offsets] == [0] * len(found[1].offsets)

    align()
    assert fitted > 50


@given(graph=small_graphs(), slack=st.integers(0, 8))
@examples(100)
def test_everything_that_is_kept_in_a_large_arena_stays(graph: CostedGraph, slack: int) -> None:
    """Where each tensor has room of its own, nothing is paged out of the way."""
    total = sum(tensor.bytes for tensor in graph.tensors)
    workspace = max(op.workspace_bytes for op in graph.ops)
    problem = Problem(graph, Budget(ram_bytes=2 * total + workspace + slack))
    everything = keep_everything(graph)
    found = evict_into_arena(problem, everything)
    if found is None:
        assert grows_in_place(graph)
    else:
        assert found[0] == everything


def test_a_step_in_slices_fits_where_its_largest_operation_does() -> None:
    step = build_model("resnet8", parameters_in="storage", slices=Slices(32 << 10))
    graph = cost_graph(step, load_published("m4")).graph
    least, _ = least_ram_bytes(graph)
    problem = Problem(graph, Budget(ram_bytes=least))
    assert energy_j(problem, page_everything(problem)) < math.inf
    problem = Problem(graph, Budget(ram_bytes=least + least // 4))
    greedy = greedy_schedule(problem, thorough=False)
    assert greedy is not None
    at_once = energy_j(problem, greedy)
    assert energy_j(problem, greedy, seconds=0.5) <= at_once < math.inf

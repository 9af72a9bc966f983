"""Published methods for comparison: each follows its paper, and its result is a valid schedule."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cli
from devices.errors import EngineFailed
from solver.baselines import baseline, checkmate, checkpointing, comparison, restricted, scheduled
from solver.baselines.baseline import BaselineResult, ladder
from solver.baselines.checkpointing import articulation_points
from solver.baselines.chen import checkpointed_at
from solver.baselines.coop import Coop
from solver.baselines.dtr import dtr
from solver.baselines.evicted import EvictedNeighbourhoods
from solver.baselines.griewank import repetitions, reversed_with, segments_before_checkpoint
from solver.baselines.registry import BASELINES, run_baseline
from solver.baselines.scheduled import schedule_by_baseline
from solver.constructed import keep_everything
from solver.files.figures import wrong_figures
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph, Op
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Compute, PageIn, PageOut, Schedule
from solver.referee.referee import Replay, replay, verify
from solver.solving.solving import solve_graph
from solver.time_limit import OutOfTime, TimeLimit
from tests.support.documents import write_json
from tests.support.graphs.graph_examples import (
    graph,
    op,
    tensor,
    tight,
    training_chain,
    unconstrained_peak,
)
from tests.support.graphs.graph_strategies import examples, small_graphs, tight_problems
from tests.support.graphs.schedules import schedule_of
from tests.support.paths import ROOT

# Methods without an engine, and so without a separate process for each example.
_WITHOUT_ENGINE = [
    name for name in BASELINES if name not in ("remat-only", "paging-only", "checkmate-lp-rounding")
]
_LIMIT_S = 20.0


@st.composite
def two_pass_problems(draw: st.DrawFn) -> tuple[CostedGraph, Budget]:
    """A small problem whose last ops are its backward pass."""
    problem, budget = draw(tight_problems())
    turn = draw(st.integers(1, len(problem.ops) - 1))
    ops = [
        o.model_copy(update={"phase": "forward" if k < turn else "backward"})
        for k, o in enumerate(problem.ops)
    ]
    share = draw(st.sampled_from([0.0, 0.5, 1.0]))
    roomier = budget.ram_bytes + int(share * (unconstrained_peak(problem) - budget.ram_bytes))
    return (
        problem.model_copy(update={"ops": tuple(ops)}),
        budget.model_copy(update={"ram_bytes": roomier}),
    )


def _computed(actions: tuple[Action, ...] | None) -> list[str]:
    assert actions is not None
    return [action.op for action in actions if isinstance(action, Compute)]


def _recomputed(problem: CostedGraph, actions: tuple[Action, ...] | None) -> list[str]:
    """Names of the recomputed ops, in order."""
    seen: set[str] = set()
    again = []
    for name in _computed(actions):
        if name in seen:
            again.append(name)
        seen.add(name)
    assert seen == {o.name for o in problem.ops}
    return again


# --- all of them ----------------------------------------------------------------------------------


@pytest.mark.slow
@given(problem_and_budget=two_pass_problems())
@examples(35)
@pytest.mark.parametrize("name", _WITHOUT_ENGINE)
def test_baseline_schedule_is_within_the_budget(
    name: str, problem_and_budget: tuple[CostedGraph, Budget]
) -> None:
    _assert_valid_or_explained(name, *problem_and_budget)


@pytest.mark.slow
@given(problem_and_budget=two_pass_problems())
@examples(4)
@pytest.mark.parametrize("name", [n for n in BASELINES if n not in _WITHOUT_ENGINE])
def test_baseline_schedule_of_a_solver_is_within_the_budget(
    name: str, problem_and_budget: tuple[CostedGraph, Budget]
) -> None:
    _assert_valid_or_explained(name, *problem_and_budget)


def _assert_valid_or_explained(name: str, problem: CostedGraph, budget: Budget) -> None:
    result = run_baseline(name, Problem(problem, budget), _LIMIT_S)
    assert result.note
    if result.actions is not None:
        verify(problem, result.actions, budget)
    if name in ("dtr", "coop"):
        assert result.arena_bytes is not None
        assert 0 <= result.arena_bytes <= budget.ram_bytes
        assert result.fragmentation is not None
        assert 0 <= result.fragmentation <= 1
        if result.actions is not None:
            peak_bytes = replay(problem, result.actions).peak_bytes
            assert peak_bytes <= result.arena_bytes
    elif name in ("remat-only", "paging-only"):
        if result.actions is not None:
            peak_bytes = replay(problem, result.actions).peak_bytes
            assert result.arena_bytes is not None
            assert peak_bytes <= result.arena_bytes <= budget.ram_bytes
    else:
        assert result.arena_bytes is None


@pytest.mark.parametrize("name", list(BASELINES))
def test_every_baseline_finds_a_schedule_if_everything_fits(name: str) -> None:
    problem = training_chain(8)
    budget = Budget(ram_bytes=unconstrained_peak(problem))
    result = run_baseline(name, Problem(problem, budget), _LIMIT_S)
    least_j = replay(problem, keep_everything(problem)).energy_j
    energy_j = verify(problem, result.actions or (), budget).energy_j
    if name == "page-everything":
        assert energy_j > 1.1 * least_j  # it always pages
    elif name in ("dtr", "coop", "checkmate-lp-rounding"):
        assert energy_j < 1.1 * least_j  # holes and reserves cost a little
    else:
        assert energy_j == pytest.approx(least_j)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BASELINES))
def test_baseline_without_a_schedule_explains_why(name: str) -> None:
    problem = training_chain(4)
    result = run_baseline(name, Problem(problem, Budget(ram_bytes=100)), _LIMIT_S)
    assert result.actions is None
    if name in ("keep-everything", "page-everything", "chen-sqrt-n", "griewank"):
        assert "over the budget" in result.note
    else:
        words = ("infeasible", "out of memory", "no schedule within", "over the budget")
        assert any(word in result.note for word in words)


def test_note_states_by_how_much_the_budget_is_missed() -> None:
    problem = training_chain(8)
    peak = unconstrained_peak(problem)
    result = run_baseline("keep-everything", Problem(problem, Budget(ram_bytes=peak - 8)), 1.0)
    assert result.actions is None
    assert f"needs {peak} bytes, 8 (" in result.note


def test_linear_program_that_would_take_gigabytes_is_not_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def built(*_: object) -> None:
        raise AssertionError("the program was built")

    monkeypatch.setattr(checkmate, "CompactFormulation", built)
    problem = training_chain(1000)
    result = run_baseline("checkmate-lp-rounding", Problem(problem, tight(problem, 0.5)), _LIMIT_S)
    assert result.actions is None
    assert result.note == "the linear program is too large for 2000 ops"


def test_larger_budget_is_not_called_infeasible_without_proof() -> None:
    """Within 200 bytes, ``w`` is paged in beside ``h``; within 100, the step takes 3 s."""
    ops = [op("h", "", "a", workspace_bytes=100), op("w", "x", "b")]
    ops += [op(f"free{k}", "", f"c{k}", time_s=0.0) for k in range(13)]
    x = tensor("x", 100, home="storage", page_in=(1.0, 1.0))
    problem = graph(ops, [x, *(tensor(each.writes[0], 0) for each in ops)])
    beside = CostedGraph(
        name="beside", ops=problem.ops, tensors=problem.tensors, asynchronous_transfers=True
    )
    too_small, enough = (
        run_baseline("paging-only", Problem(beside, Budget(ram_bytes=n, deadline_s=2.5)), _LIMIT_S)
        for n in (50, 200)
    )
    assert enough.actions is not None
    assert too_small.actions is None
    assert too_small.note == "infeasible; no larger RAM budget is known to be enough"


def test_smallest_budget_that_was_found_is_not_called_what_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = training_chain(4)
    infeasible = solve_graph(problem, Budget(ram_bytes=100), SolverOptions(time_limit_s=1.0))
    advised = {"smallest_ram_bytes": 500, "smallest_ram_bound_bytes": 400, "limiting_op": "b1"}
    found = infeasible.model_copy(update=advised)
    monkeypatch.setattr(restricted, "solve_graph", lambda *_: found)
    result = run_baseline("remat-only", Problem(problem, Budget(ram_bytes=100)), _LIMIT_S)
    assert result.note == (
        "infeasible: the smallest RAM budget is at most 500 bytes (500 B), for which a schedule was"
        " found; at least 400 bytes are needed, set by b1"
    )


def test_baseline_schedule_after_the_deadline_is_dropped() -> None:
    problem = training_chain(8)
    step_s = replay(problem, keep_everything(problem)).time_s
    unhurried = tight(problem, 0.7)
    assert run_baseline("chen-sqrt-n", Problem(problem, unhurried), _LIMIT_S).actions is not None
    hurried = tight(problem, 0.7, deadline_s=step_s * 1.001)
    result = run_baseline("chen-sqrt-n", Problem(problem, hurried), _LIMIT_S)
    assert result.actions is None
    assert "deadline" in result.note


@pytest.mark.slow
def test_remat_only_never_pages_and_paging_only_never_recomputes() -> None:
    problem = training_chain(7, seed=2)
    budget = tight(problem, 0.5)

    def energy_and_actions(name: str) -> tuple[float, tuple[Action, ...]]:
        actions = run_baseline(name, Problem(problem, budget), _LIMIT_S).actions
        assert actions is not None
        return replay(problem, actions).energy_j, actions

    remat_j, remat = energy_and_actions("remat-only")
    paging_j, paging = energy_and_actions("paging-only")
    rounded_j, rounded = energy_and_actions("checkmate-lp-rounding")
    for actions in (remat, rounded):
        assert not any(isinstance(action, PageIn | PageOut) for action in actions)
        assert _recomputed(problem, actions)
    assert not _recomputed(problem, paging)
    assert any(isinstance(action, PageIn) for action in paging)
    assert remat_j <= rounded_j <= 2 * remat_j
    assert remat_j != paging_j


# --- checkpointing --------------------------------------------------------------------------------


def _chain(length: int) -> CostedGraph:
    """``length`` forward ops of equal cost, and their backward ops.

    Each forward op writes a small state for the next one and a large record for its backward op.
    """
    ops: list[Op] = []
    tensors = [tensor("s0", 1, kind="input", home="ram")]
    for k in range(1, length + 1):
        ops.append(op(f"f{k}", f"s{k - 1}", f"s{k} m{k}"))
        tensors += [tensor(f"s{k}", 1), tensor(f"m{k}", 10)]
    gradient = f"s{length}"
    for k in range(length, 0, -1):
        ops.append(op(f"b{k}", f"{gradient} m{k}", f"g{k}", phase="backward"))
        tensors.append(tensor(f"g{k}", 1, kind="gradient"))
        gradient = f"g{k}"
    return graph(ops, tensors)


def _with_room(problem: CostedGraph) -> Problem:
    return Problem(problem, Budget(ram_bytes=unconstrained_peak(problem)))


@pytest.mark.parametrize("length", [4, 9, 16, 25])
def test_checkpoints_every_sqrt_n_cost_one_more_forward_pass(length: int) -> None:
    problem = _chain(length)
    root = math.isqrt(length)
    cuts = [root * s - 1 for s in range(1, root)]
    actions = checkpointed_at(_with_room(problem), cuts)
    again = _recomputed(problem, actions)
    # All segments but the last, whose backward pass follows at once; each from its checkpoint.
    expected = [
        f"f{k}"
        for segment in reversed(range(root - 1))
        for k in range(segment * root + 1, (segment + 1) * root + 1)
    ]
    assert again == expected
    assert actions is not None
    # The records of one segment and the checkpoints, not all records.
    assert replay(problem, actions).peak_bytes <= 10 * root + root + 4


@pytest.mark.slow
def test_the_budget_sets_how_many_checkpoints_there_are() -> None:
    problem = _chain(25)
    peaks, energies_j = [], []
    for ram_bytes in (60, 75, 100, 180):
        budget = Budget(ram_bytes=ram_bytes)
        actions = run_baseline("chen-sqrt-n", Problem(problem, budget), _LIMIT_S).actions
        played = verify(problem, actions or (), budget)
        peaks.append(played.peak_bytes)
        energies_j.append(played.energy_j)
    assert energies_j == sorted(energies_j, reverse=True)
    assert energies_j[0] > energies_j[-1]
    assert peaks[0] < peaks[-1]


@cache
def _least_repetitions(segments: int, checkpoints: int) -> int:
    """Least number of repetitions, by dynamic programming over the next checkpoint's position."""
    if segments == 1:
        return 0
    if checkpoints == 1:
        return segments * (segments - 1) // 2
    return min(
        m + _least_repetitions(segments - m, checkpoints - 1) + _least_repetitions(m, checkpoints)
        for m in range(1, segments)
    )


@pytest.mark.parametrize("checkpoints", range(1, 8))
def test_the_binomial_formula_gives_the_least_number_of_repetitions(checkpoints: int) -> None:
    for segments in range(1, 40):
        least = _least_repetitions(segments, checkpoints)
        assert repetitions(segments, checkpoints) == least
        if segments > 1 and checkpoints > 1:
            m = segments_before_checkpoint(segments, checkpoints)
            rest = _least_repetitions(segments - m, checkpoints - 1)
            assert m + rest + _least_repetitions(m, checkpoints) == least


@pytest.mark.parametrize("checkpoints", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("length", [1, 2, 7, 12])
def test_reversed_chain_has_the_binomial_number_of_repetitions(
    length: int, checkpoints: int
) -> None:
    problem = _chain(length)
    actions = reversed_with(_with_room(problem), list(range(length - 1)), checkpoints)
    assert len(_recomputed(problem, actions)) == repetitions(length, checkpoints)
    assert actions is not None
    # States of the checkpoints, one record, and the operands of one op.
    assert replay(problem, actions).peak_bytes <= checkpoints + 10 + 4


def _residual_blocks() -> CostedGraph:
    """Two blocks with a shortcut around their inner op; a leaf reads the result of ``inner1``."""
    return graph(
        [
            op("stem", "x", "a"),
            op("inner1", "a", "b"),
            op("statistics", "b", "leaf", recomputable=False),
            op("add1", "a b", "c"),
            op("inner2", "c", "d"),
            op("add2", "c d", "e"),
            op("loss", "e", "l"),
            op("back", "l a b c d e", "g", phase="backward"),
        ],
        [
            tensor("x", 4, kind="input", home="ram"),
            *(tensor(name, 4) for name in ("a", "b", "leaf", "c", "d", "e", "l")),
            tensor("g", 4, kind="gradient"),
        ],
    )


def test_articulation_points_are_ops_without_a_shortcut() -> None:
    problem = _residual_blocks()
    points = articulation_points(Problem(problem, Budget(ram_bytes=100)))
    assert [problem.ops[k].name for k in points] == ["stem", "add1", "add2"]


def test_linearization_replaces_missing_articulation_points() -> None:
    # Every op but the first has a shortcut around it: the next op reads the previous op's result
    # too.
    ops = [op("f0", "x", "a0"), op("f1", "a0", "a1")]
    ops += [op(f"f{k}", f"a{k - 2} a{k - 1}", f"a{k}") for k in range(2, 16)]
    gradient = "a15"
    for k in range(14, 0, -1):
        ops.append(op(f"b{k}", f"{gradient} a{k} a{k - 1}", f"g{k}", phase="backward"))
        gradient = f"g{k}"
    tensors = [tensor("x", 1, kind="input", home="ram")]
    tensors += [tensor(f"a{k}", 4) for k in range(16)]
    tensors += [tensor(f"g{k}", 1, kind="gradient") for k in range(1, 15)]
    problem = graph(ops, tensors)
    tightened = Problem(problem, tight(problem, 0.6))
    assert articulation_points(tightened) == [0]
    for name in ("chen-sqrt-n", "griewank"):
        result = run_baseline(name, tightened, _LIMIT_S)
        assert _recomputed(problem, result.actions)
        assert result.note.startswith("linearized")


def test_checkpointing_needs_a_backward_pass() -> None:
    problem = graph([op("f", "", "a"), op("h", "a", "b")], [tensor("a", 4), tensor("b", 4)])
    for name in ("chen-sqrt-n", "griewank"):
        result = run_baseline(name, Problem(problem, Budget(ram_bytes=8)), _LIMIT_S)
        assert result.actions is None
        assert "no backward pass" in result.note


def test_ladder_has_both_ends_and_at_most_the_given_number_of_rungs() -> None:
    assert list(ladder(5, 40)) == [1, 2, 3, 4, 5]
    rungs = list(ladder(1000, 20))
    assert rungs[0] == 1
    assert rungs[-1] == 1000
    assert len(rungs) <= 21
    assert all(low < high for low, high in pairwise(rungs))
    assert list(ladder(1, 40)) == [1]


# --- eviction on the way --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("victim", "energies_j", "sizes", "read_between"),
    [
        ("a", (1.0, 5.0), (10, 10), ""),  # a is cheaper; both are equally stale
        ("b", (5.0, 1.0), (10, 10), ""),
        ("a", (5.0, 5.0), (20, 10), ""),  # a is larger
        ("b", (5.0, 5.0), (10, 20), ""),
        ("a", (5.0, 5.0), (10, 10), "b"),  # a is staler
        ("b", (5.0, 5.0), (10, 10), "a"),
    ],
)
def test_dtr_evicts_the_tensor_of_least_cost_by_size_and_staleness(
    victim: str, energies_j: tuple[float, float], sizes: tuple[int, int], read_between: str
) -> None:
    # Both tensors have the same age: one op writes each, and the second takes no time.
    ops = [
        op("make a", "", "a", energy_j=energies_j[0]),
        op("make b", "", "b", energy_j=energies_j[1], time_s=0.0),
        op("look", read_between, "seen"),
        op("fill", "seen", "c"),
        op("end", "a b", "e"),
    ]
    problem = graph(
        ops,
        [
            tensor("a", sizes[0]),
            tensor("b", sizes[1]),
            tensor("seen", 1),
            tensor("c", 10),
            tensor("e", 1),
        ],
    )
    # Room for a, b and seen, but not for c as well until a or b is evicted.
    budget = Budget(ram_bytes=sum(sizes) + 1)
    actions = dtr(Problem(problem, budget), _LIMIT_S, 1).actions
    assert _recomputed(problem, actions) == [f"make {victim}"]


def test_cost_of_a_tensor_includes_its_evicted_neighbourhood() -> None:
    costs = [1.0, 2.0, 4.0, 8.0, 16.0]

    def neighbours(i: int) -> list[int]:
        return [n for n in (i - 1, i + 1) if 0 <= n < len(costs)]

    evicted = EvictedNeighbourhoods(costs, neighbours)
    assert [evicted.cost_of(i) for i in range(5)] == costs
    evicted.evict(1)
    evicted.evict(3)
    assert evicted.cost_of(0) == 1 + 2
    assert evicted.cost_of(2) == 4 + 2 + 8
    evicted.evict(2)
    assert evicted.cost_of(0) == 1 + 2 + 4 + 8
    assert evicted.cost_of(4) == 16 + 2 + 4 + 8
    evicted.restore(2)
    # The set is not split: the rest of it counts from both ends, once.
    assert evicted.cost_of(2) == 4 + 2 + 8
    assert evicted.cost_of(0) == 1 + 2 + 8
    evicted.restore(1)
    assert evicted.cost_of(0) == 1


def _comb(count: int) -> CostedGraph:
    """Cheap and dear tensors in turn fill the RAM; then one as large as two of them is written.

    All are read at the end.
    """
    names = [f"t{k}" for k in range(count)]
    ops = [
        op(f"make {name}", "", name, energy_j=1.0 if k % 2 == 0 else 50.0, time_s=1e-6)
        for k, name in enumerate(names)
    ]
    ops += [op("large", "", "wide"), op("look", "wide", "seen")]
    ops += [op(f"use {name}", name, f"u {name}".replace(" ", "")) for name in names]
    tensors = [tensor(name, 10) for name in names]
    tensors += [tensor("wide", 20), tensor("seen", 1)]
    tensors += [tensor(f"u{name}", 1) for name in names]
    return graph(ops, tensors)


def test_coop_evicts_neighbours_and_leaves_fewer_holes_than_dtr() -> None:
    problem = _comb(8)
    budget = Budget(ram_bytes=81)
    by_dtr = run_baseline("dtr", Problem(problem, budget), _LIMIT_S)
    by_coop = run_baseline("coop", Problem(problem, budget), _LIMIT_S)
    # Every other tensor is cheap: DTR evicts all of these before a dear one.
    assert len(_recomputed(problem, by_dtr.actions)) > 2
    # Of cheap neighbours, two are enough.
    again = _recomputed(problem, by_coop.actions)
    assert len(again) == 2
    assert all(int(name.removeprefix("make t")) % 2 == 0 for name in again)
    assert by_dtr.fragmentation is not None
    assert by_coop.fragmentation is not None
    assert by_coop.fragmentation < by_dtr.fragmentation
    assert _energy_j(problem, by_coop.actions) < _energy_j(problem, by_dtr.actions)


def _energy_j(problem: CostedGraph, actions: tuple[Action, ...] | None) -> float:
    assert actions is not None
    played: Replay = replay(problem, actions)
    return played.energy_j


class _WatchedCoop(Coop):
    """Compares every window with the cheapest of all runs of adjacent blocks."""

    windows = 0

    def cheapest_window(self, size_bytes: int) -> list[int]:
        window = super().cheapest_window(size_bytes)
        blocks = list(self.arena.blocks())
        costs = []
        for first in range(len(blocks)):
            for end in range(first + 1, len(blocks) + 1):
                run = blocks[first:end]
                owners = [block.owner for block in run if block.owner is not None]
                if sum(block.size_bytes for block in run) >= size_bytes and all(
                    owner >= 0 and self.may_be_evicted(owner) for owner in owners
                ):
                    costs.append(self._rate(owners))
        assert bool(window) == bool(costs)
        if window:
            type(self).windows += 1
            assert self._rate(window) == pytest.approx(min(costs))
            places = [p for p, block in enumerate(blocks) if block.owner in window]
            between = blocks[places[0] : places[-1] + 1]
            assert all(block.owner is None or block.owner in window for block in between)
        return window

    def _rate(self, owners: list[int]) -> float:
        return sum(self.projected_cost_j(i) / self.staleness_s(i) for i in owners)


@pytest.mark.parametrize("share", [0.3, 0.6])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_coops_windows_are_contiguous_and_the_cheapest(seed: int, share: float) -> None:
    problem = training_chain(15, seed=seed)
    _WatchedCoop.windows = 0
    _WatchedCoop(Problem(problem, tight(problem, share)), _LIMIT_S).run()
    assert _WatchedCoop.windows > 2


def test_coop_works_in_place_where_dtr_copies() -> None:
    problem = graph(
        [op("make", "", "a"), op("relu", "a", "r", in_place={"r": "a"}), op("end", "r", "e")],
        [tensor("a", 10), tensor("r", 10), tensor("e", 1)],
    )
    budget = Budget(ram_bytes=15)
    assert run_baseline("coop", Problem(problem, budget), _LIMIT_S).actions is not None
    by_dtr = run_baseline("dtr", Problem(problem, budget), _LIMIT_S)
    assert by_dtr.actions is None
    assert "out of memory" in by_dtr.note


@pytest.mark.parametrize("name", ["dtr", "coop"])
def test_tensor_that_cannot_be_recomputed_is_not_evicted(name: str) -> None:
    # "once" is the cheapest tensor and the only large enough one, but it cannot be recomputed.
    problem = graph(
        [
            op("make once", "", "once", energy_j=0.1, recomputable=False),
            op("make a", "", "a", energy_j=9.0),
            op("fill", "", "c"),
            op("end", "once a c", "e"),
        ],
        [tensor("once", 10), tensor("a", 10), tensor("c", 10), tensor("e", 1)],
    )
    assert run_baseline(name, Problem(problem, Budget(ram_bytes=31)), _LIMIT_S).actions is not None
    assert run_baseline(name, Problem(problem, Budget(ram_bytes=29)), _LIMIT_S).actions is None


@pytest.mark.parametrize("name", ["dtr", "coop"])
def test_evicted_tensor_is_recomputed_before_its_parameter_is_updated(name: str) -> None:
    # "a" is evicted for "c", and cannot be recomputed once "w" is updated.
    problem = graph(
        [
            op("forward", "w", "a"),
            op("detour", "", "c"),
            op("look", "c", "seen"),
            op("update", "w", "w1", in_place={"w1": "w"}, recomputable=False, phase="update"),
            op("end", "a seen", "e", phase="backward"),
        ],
        [
            tensor("w", 5, kind="parameter", home="ram"),
            tensor("w1", 5, kind="parameter", persist="ram"),
            tensor("a", 10),
            tensor("c", 15),
            tensor("seen", 1),
            tensor("e", 1),
        ],
    )
    actions = run_baseline(name, Problem(problem, Budget(ram_bytes=22)), _LIMIT_S).actions
    assert _recomputed(problem, actions) == ["forward"]
    computed = _computed(actions)
    assert computed.index("update") > len(computed) - 1 - computed[::-1].index("forward")


@pytest.mark.parametrize("name", ["dtr", "coop"])
def test_update_does_not_evict_tensors_computed_from_its_parameter(name: str) -> None:
    # Evicting "a" or "b" would make room for a copy of "w", but they could not be recomputed.
    problem = graph(
        [
            op("forward", "w", "a b"),
            op("update", "w", "w1", in_place={"w1": "w"}, recomputable=False, phase="update"),
            op("end", "a b", "e"),
        ],
        [
            tensor("w", 1, kind="parameter", home="ram"),
            tensor("w1", 1, kind="parameter"),
            *(tensor(written, 1) for written in "abe"),
        ],
    )
    result = run_baseline(name, Problem(problem, Budget(ram_bytes=3)), _LIMIT_S)
    assert (result.actions is None) == (name == "dtr")


def test_source_is_kept_while_an_evicted_tensor_depends_on_it() -> None:
    # "b" is evicted for "d". "x" must then stay, though "wide" needs room: "a", between the two, is
    # about to be overwritten.
    problem = graph(
        [
            op("make a", "x", "a"),
            op("make b", "a", "b"),
            op("overwrite", "a", "c d wide", in_place={"c": "a"}, recomputable=False),
            op("end", "b", "e"),
        ],
        [
            tensor("x", 6, kind="input", home="ram"),
            *(tensor(written, 1) for written in "abcde"),
            tensor("wide", 5),
        ],
    )
    result = run_baseline("coop", Problem(problem, Budget(ram_bytes=8)), _LIMIT_S)
    assert result.actions is None
    assert "out of memory: 5 bytes requested" in result.note


@pytest.mark.parametrize("name", ["capuchin-like", "dtr"])
def test_baseline_stops_at_its_time_limit(name: str) -> None:
    problem = training_chain(20)
    result = run_baseline(name, Problem(problem, tight(problem, 0.3)), 0.0)
    assert result.actions is None
    assert result.note == "stopped by the time limit of 0 s"


@pytest.mark.parametrize("name", ["chen-sqrt-n", "griewank"])
@pytest.mark.parametrize("fits", [True, False])
def test_checkpointing_keeps_what_it_tried_before_its_time_limit(
    name: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = 0

    def counting(*arguments: Any) -> Replay:
        nonlocal judged
        judged += 1
        return replay(*arguments)

    def passes_after_the_first() -> None:
        if judged:
            raise OutOfTime

    monkeypatch.setattr(baseline, "replay", counting)
    monkeypatch.setattr(checkpointing, "check_time", passes_after_the_first)
    problem = training_chain(20)
    result = run_baseline(name, Problem(problem, tight(problem, 1.0 if fits else 0.0)), _LIMIT_S)
    assert judged == 1
    assert (result.actions is not None) == fits
    assert result.note.endswith(" (not every variant was tried in 20 s)")
    assert ("over the budget" in result.note) != fits


def test_comparison_goes_on_if_the_engine_of_one_baseline_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(name: str, problem: Problem, _limit_s: float, _threads: int) -> BaselineResult:
        if name == "remat-only":
            raise EngineFailed("the engine was killed")
        return BaselineResult(keep_everything(problem.graph), "kept")

    monkeypatch.setattr(comparison, "run_baseline", run)
    problem = training_chain(5)
    schedule = schedule_of(problem, keep_everything(problem))
    compared = comparison.compare_with_baselines(problem, schedule, TimeLimit()).baselines
    assert [each.name for each in compared] == list(BASELINES)
    for each in compared:
        failed = each.name == "remat-only"
        assert each.result.note == ("the engine was killed" if failed else "kept")
        assert (each.played is None) == failed


def test_baselines_are_listed_in_the_order_of_the_papers() -> None:
    assert list(BASELINES) == [
        "keep-everything",
        "page-everything",
        "chen-sqrt-n",
        "griewank",
        "remat-only",
        "paging-only",
        "checkmate-lp-rounding",
        "capuchin-like",
        "dtr",
        "coop",
    ]
    with pytest.raises(KeyError):
        run_baseline("chen", _with_room(_chain(2)), 1.0)


@given(problem=small_graphs())
@examples(35)
def test_with_ample_ram_no_op_is_recomputed(problem: CostedGraph) -> None:
    everything = replay(problem, keep_everything(problem))
    budget = Budget(ram_bytes=20 * everything.peak_bytes + 100)
    for name in ("dtr", "coop"):
        result = run_baseline(name, Problem(problem, budget), _LIMIT_S)
        assert _energy_j(problem, result.actions) == pytest.approx(everything.energy_j)
        assert result.fragmentation == 0


# --- on the command line --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True])
def test_solve_shows_all_baselines_beside_the_schedule(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = training_chain(5)
    given_graph = tmp_path / "graph.json"
    write_json(given_graph, problem)
    argv = ["solve", "--graph", str(given_graph), "--ram-budget", "80%", "--baselines"]
    argv += ["--out", str(tmp_path / "schedule.json"), *(["--json"] if as_json else [])]
    assert cli.main(argv) == 0
    printed = capsys.readouterr().out
    if not as_json:
        rows = [line.split()[0] for line in printed.splitlines() if line.strip()]
        first = rows.index("method")
        assert rows[first + 2 : first + 2 + len(BASELINES)] == list(BASELINES)
        return
    document = json.loads(printed)
    by_name = {row["name"]: row for row in document["baselines"]}
    assert list(by_name) == list(BASELINES)
    assert "energy_j" not in by_name["keep-everything"]
    assert "over the budget" in by_name["keep-everything"]["note"]
    # Both are within 0.1 % of their own optimum.
    assert by_name["remat-only"]["energy_j"] >= document["energy_j"] * 0.999
    assert by_name["coop"]["fragmentation"] >= 0


@pytest.mark.parametrize("addresses", [True, False])
def test_solve_says_how_the_compared_methods_count_ram_and_gives_them_its_threads(
    addresses: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: dict[str, int] = {}

    def run(name: str, problem: Problem, _limit_s: float, of_search: int) -> BaselineResult:
        threads[name] = of_search
        return BaselineResult(keep_everything(problem.graph), "kept")

    monkeypatch.setattr(comparison, "run_baseline", run)
    given_graph = tmp_path / "graph.json"
    write_json(given_graph, training_chain(5))
    argv = ["solve", "--graph", str(given_graph), "--ram-budget", "100%", "--baselines"]
    argv += ["--threads", "3", "--out", str(tmp_path / "schedule.json")]
    assert cli.main([*argv, *([] if addresses else ["--no-addresses"])]) == 0
    assert threads == dict.fromkeys(BASELINES, 3)
    (said,) = (line for line in capsys.readouterr().out.splitlines() if "sum of bytes" in line)
    assert ("addresses in one arena" in said) == addresses
    assert ("this schedule" in said) != addresses


@pytest.mark.slow
@pytest.mark.parametrize("name", ["remat-only", "paging-only", "checkmate-lp-rounding"])
def test_methods_that_search_have_the_threads_that_they_are_given(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    class Counted(checkmate.Engine):
        def minimise(self, *arguments: Any, **options: Any) -> Any:
            threads.append(options["threads"])
            return super().minimise(*arguments, **options)

    def solved(given: CostedGraph, budget: Budget, options: SolverOptions) -> Schedule:
        threads.append(options.threads)
        return solve_graph(given, budget, options)

    monkeypatch.setattr(checkmate, "Engine", Counted)
    monkeypatch.setattr(restricted, "solve_graph", solved)
    problem = training_chain(5)
    schedule = schedule_by_baseline(problem, tight(problem, 0.8), name, _LIMIT_S, threads=1)
    assert set(threads) == {1}
    assert schedule.solver.threads == 1


def test_the_page_names_every_published_method() -> None:
    page = (ROOT / "docs" / "solving.md").read_text().partition("## Published methods")[2]
    assert set(BASELINES) <= set(re.findall(r"`([\w-]+)`", page.partition("\n## ")[0]))


# --- as documents ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _WITHOUT_ENGINE)
@pytest.mark.parametrize("share", [0.2, 0.8, 1.0])
def test_a_method_s_schedule_has_addresses_and_true_figures(name: str, share: float) -> None:
    problem = training_chain(4)
    budget = Budget(ram_bytes=int(share * unconstrained_peak(problem)))
    schedule = schedule_by_baseline(problem, budget, name, _LIMIT_S)
    assert list(wrong_figures(problem, schedule)) == []
    found = run_baseline(name, Problem(problem, budget), _LIMIT_S)
    assert bool(schedule.actions) == (found.actions is not None)
    if schedule.actions:
        assert schedule.peak_bytes is not None
        assert schedule.arena_bytes is not None
        assert schedule.peak_bytes <= budget.ram_bytes
        is_over = schedule.arena_bytes > budget.ram_bytes
        assert schedule.budget.ram_bytes == max(schedule.arena_bytes, budget.ram_bytes)
        assert any("more than the budget" in note for note in schedule.notes) == is_over


def test_a_schedule_that_has_addresses_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may have taken a longer search than that for other schedules."""

    def none(*_: object) -> None:
        raise AssertionError("addresses are planned again")

    monkeypatch.setattr(scheduled, "plan_addresses", none)
    problem = training_chain(4)
    budget = tight(problem, 0.8)
    schedule = schedule_by_baseline(problem, budget, "remat-only", _LIMIT_S)
    assert schedule.arena_bytes is not None
    assert schedule.peak_bytes is not None
    assert schedule.peak_bytes <= schedule.arena_bytes <= budget.ram_bytes
    assert list(wrong_figures(problem, schedule)) == []

"""The retention formulation: its optimum, its bound, and its search as a caller sees it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from solver.constructed import keep_everything
from solver.engines.messages import Bound
from solver.options import SolverOptions
from solver.problem.claims import GIVEN_ORDER
from solver.problem.graph import CostedGraph, PageCost
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Compute, Free, PageIn, first_executions
from solver.referee.referee import replay, verify
from solver.retention.hints import actions_of, hint_of
from solver.retention.messages import Found, Task
from solver.retention.model import RetentionModel
from solver.retention.retention import INTERVALS, Ending, restrictions_of, solve_retention
from solver.retention.search import search
from solver.solving.solving import solve_graph
from tests.support.boards.processes import (
    marked,
    started_as_by_a_shell,
    wait_until,
)
from tests.support.graphs.graph_examples import (
    actions,
    crossed_chain,
    graph,
    op,
    tensor,
    tight,
    training_chain,
    two_layers,
)
from tests.support.graphs.graph_strategies import (
    action_lists,
    examples,
    least_energy_by_exhaustion,
    small_graphs,
    tight_problems,
)

# More intervals than any schedule of a small graph can use.
PLENTY = 6


@dataclass
class _Result:
    """Messages of one search; the referee has verified every schedule."""

    outcome: str
    schedules: list[tuple[Action, ...]] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)


def _search(
    problem: CostedGraph,
    budget: Budget,
    intervals: int = INTERVALS,
    objective: Literal["energy", "time"] = "energy",
) -> _Result:
    """Search in this process: starting another one takes longer than such a search."""
    heard = _Result("")

    def listen(said: Found | Bound) -> None:
        if isinstance(said, Bound):
            heard.bounds.append(said.objective)
        else:
            result = verify(problem, said.actions, budget)
            heard.schedules.append(said.actions)
            heard.values.append(result.energy_j if objective == "energy" else result.time_s)

    task = Task(Problem(problem, budget), objective, intervals, threads=1, starts=())
    heard.outcome = search(task, listen).outcome
    return heard


def _is_paged_in_again_within_a_stage(problem: CostedGraph, schedule: tuple[Action, ...]) -> bool:
    """Whether a tensor is paged in that has been in RAM since the last first execution.

    The exhaustive search excludes such schedules.
    """
    done: set[str] = set()
    ram = {t.name for t in problem.tensors if t.name not in problem.producer}
    ram -= {t.name for t in problem.tensors if t.home == "storage"}
    seen = set(ram)
    ops = {op.name: op for op in problem.ops}
    for action in schedule:
        match action:
            case Compute():
                ram |= set(ops[action.op].writes)
                ram -= set(ops[action.op].in_place.values())
                seen |= ram
                if action.op not in done:
                    done.add(action.op)
                    seen = set()
            case PageIn():
                if action.tensor in seen:
                    return True
                ram.add(action.tensor)
                seen.add(action.tensor)
            case Free():
                ram.discard(action.tensor)
    return False


# --- the optimum ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_retention_with_enough_intervals_finds_every_small_optimum() -> None:
    """Both searches agree, but for schedules that the exhaustive search excludes.

    These page in a tensor that was in RAM since the last first execution.
    """
    overheads_j: list[float] = []

    @given(problem_and_budget=tight_problems())
    @examples(70)
    def compare(problem_and_budget: tuple[CostedGraph, Budget]) -> None:
        problem, budget = problem_and_budget
        least_j = least_energy_by_exhaustion(problem, budget)
        result = _search(problem, budget, PLENTY)
        if result.outcome == "infeasible":
            assert least_j is None
            return
        assert result.outcome == "optimal"
        best_j = result.values[-1]
        assert result.bounds[-1] == pytest.approx(best_j)
        if least_j is None or best_j < least_j - 1e-6:
            assert _is_paged_in_again_within_a_stage(problem, result.schedules[-1])
        else:
            assert best_j == pytest.approx(least_j)
            overheads_j.append(best_j - replay(problem, keep_everything(problem)).energy_j)

    compare()
    # Most examples must have needed recomputation or paging.
    assert sum(overhead_j > 0 for overhead_j in overheads_j) > 20


@given(problem_and_budget=tight_problems())
@examples(25)
def test_fewer_intervals_never_need_less_energy(
    problem_and_budget: tuple[CostedGraph, Budget],
) -> None:
    problem, budget = problem_and_budget
    bests_j = []
    for intervals in (1, 2, 3, PLENTY):
        result = _search(problem, budget, intervals)
        assert result.outcome in ("optimal", "infeasible")
        bests_j.append(result.values[-1] if result.values else float("inf"))
        for actions_taken in result.schedules:
            for done in problem.ops:
                assert actions_taken.count(Compute(op=done.name)) <= intervals
    assert bests_j == sorted(bests_j, reverse=True)


@pytest.mark.slow
@given(problem_and_budget=tight_problems())
@examples(25)
def test_retention_finds_the_least_time(
    problem_and_budget: tuple[CostedGraph, Budget],
) -> None:
    """The objective of the paper: least time, without paging."""
    problem, budget = problem_and_budget
    ops = tuple(op.model_copy(update={"time_s": op.energy_j}) for op in problem.ops)
    problem = CostedGraph(name="time is energy", ops=ops, tensors=problem.tensors)
    budget = Budget(ram_bytes=budget.ram_bytes, paging=False)
    # Tensors with home or persistence in storage are still paged.
    assume(not any(t.home == "storage" or t.persist == "storage" for t in problem.tensors))
    least = least_energy_by_exhaustion(problem, budget)
    result = _search(problem, budget, PLENTY, "time")
    assert (result.values[-1] if result.values else None) == least
    if least is not None:
        assert result.bounds[-1] == least


def test_an_op_is_computed_as_often_as_intervals_allow() -> None:
    """``a`` is read twice; before each reading a large tensor needs its room."""
    problem = graph(
        [
            op("make", "x", "a"),
            op("grow", "x", "big"),
            op("shrink", "big", "small"),
            op("use", "a small", "used"),
            op("grow2", "used", "big2"),
            op("shrink2", "big2", "small2"),
            op("use2", "a small2", "end"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("a", 4),
            *(tensor(name, 8) for name in ("big", "big2")),
            *(tensor(name, 1) for name in ("small", "used", "small2", "end")),
        ],
    )
    budget = Budget(ram_bytes=10)
    assert _search(problem, budget, 2).outcome == "infeasible"
    assert _search(problem, budget, 3).values[-1] == 9.0


def test_overwritten_tensor_is_recomputed_for_its_later_reader() -> None:
    """``v`` and ``a`` are both computed from ``u``, and ``v`` overwrites ``u``.

    Both are read again after a large tensor, one after the other: together they have no room.
    """
    problem = graph(
        [
            op("make", "x", "u"),
            op("branch", "u", "a"),
            op("over", "u", "v", in_place={"v": "u"}),
            op("grow", "x", "big"),
            op("shrink", "big", "small"),
            op("use v", "v small", "used"),
            op("use a", "a used", "end"),
        ],
        [
            tensor("x", 1, home="ram"),
            *(tensor(name, 4) for name in ("u", "v")),
            tensor("a", 7),
            tensor("big", 8),
            *(tensor(name, 1) for name in ("small", "used", "end")),
        ],
    )
    budget = Budget(ram_bytes=12)
    assert _search(problem, budget, 2).outcome == "infeasible"
    # "make" runs three times, "branch" and "over" twice.
    assert _search(problem, budget, 3).values[-1] == 11.0


def test_unneeded_output_of_a_recomputed_op_takes_ram() -> None:
    problem = graph(
        [
            op("make", "x", "a waste"),
            op("grow", "x", "big"),
            op("shrink", "big", "small"),
            op("last", "a small", "end"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("a", 4),
            tensor("waste", 6),
            tensor("big", 9),
            tensor("small", 2),
            tensor("end", 1),
        ],
    )
    assert _search(problem, Budget(ram_bytes=13)).values[-1] == 5.0
    assert _search(problem, Budget(ram_bytes=12)).outcome == "infeasible"


def test_the_deadline_decides_between_recomputing_and_paging() -> None:
    problem = graph(
        [
            op("make", "x", "a", energy_j=2.5, time_s=9.0),
            op("grow", "x", "big"),
            op("shrink", "big", "small"),
            op("last", "a small", "end"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("a", 4, page_out=(2.0, 2.0), page_in=(1.0, 1.0)),
            tensor("big", 8),
            tensor("small", 1),
            tensor("end", 1),
        ],
    )

    def least_j(deadline_s: float, *, instantaneous: bool = False) -> float | None:
        budget = Budget(ram_bytes=10, deadline_s=deadline_s, instantaneous_paging=instantaneous)
        values = _search(problem, budget).values
        return values[-1] if values else None

    assert least_j(21.0) == 2.5 + 3 + 2.5
    assert least_j(20.9) == 2.5 + 3 + 3
    assert least_j(15.0) == 2.5 + 3 + 3
    assert least_j(14.9) is None
    assert least_j(12.0, instantaneous=True) == 2.5 + 3 + 3
    assert least_j(11.9, instantaneous=True) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lateness", "ending"), [(1e-12, "proven"), (1.05e-9, "infeasible"), (1.3e-9, "infeasible")]
)
def test_no_schedule_is_found_that_the_referee_calls_late(lateness: float, ending: Ending) -> None:
    """The referee tolerates a lateness of 1e-9, for sums of doubles."""
    problem = graph(
        [
            op("make", "x", "a", time_s=1 / 3),
            op("grow", "x", "big", time_s=0.7),
            op("shrink", "big", "small"),
            op("last", "a small", "end"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("a", 4),
            tensor("big", 8),
            *(tensor(name, 1) for name in ("small", "end")),
        ],
    )
    # Nothing else fits than to compute "make" again.
    takes_s = 2 * (1 / 3) + 0.7 + 2.0
    budget = Budget(ram_bytes=10, deadline_s=takes_s / (1 + lateness))
    found: list[tuple[Action, ...]] = []
    assert _solve(problem, budget, on_actions=found.append) == ending
    assert bool(found) == (ending == "proven")


def test_bound_stays_below_the_optimum_for_fractional_costs() -> None:
    problem = training_chain(6, energy_unit_j=1e-7)
    budget = tight(problem, 0.25, deadline_s=1.4 * sum(op.time_s for op in problem.ops))
    optimum_j = solve_graph(problem, budget, SolverOptions(gap=0.0, threads=1)).energy_j
    result = _search(problem, budget, PLENTY)
    assert optimum_j is not None
    assert result.values[-1] == pytest.approx(optimum_j, rel=1e-9, abs=0)
    assert result.bounds[-1] == pytest.approx(optimum_j, rel=1e-8, abs=0)
    assert all(bound_j <= optimum_j for bound_j in result.bounds)


# --- the class of schedules that the bound is about -----------------------------------------------


def keeps_to(restriction: str, problem: CostedGraph, schedule: Sequence[Action]) -> bool:
    """Whether a schedule keeps to a restriction, by its words."""
    if restriction == GIVEN_ORDER:
        return first_executions(schedule) == problem.order
    if restriction.startswith("between two first executions each op is recomputed at most once"):
        return all(stage == sorted(set(stage)) for stage in _recomputed_by_stage(problem, schedule))
    if times := re.fullmatch(r"each op is computed at most (\d) times", restriction):
        return all(schedule.count(Compute(op=op.name)) <= int(times[1]) for op in problem.ops)
    if times := re.fullmatch(
        r"a tensor that is needed is in RAM at most (\d) times, of which being there when the step"
        r" begins is one",
        restriction,
    ):
        return max(_stays_that_are_used(problem, schedule).values(), default=0) <= int(times[1])
    raise AssertionError(f"no check of {restriction!r}")


def _recomputed_by_stage(problem: CostedGraph, schedule: Sequence[Action]) -> list[list[int]]:
    """Indices of the ops that are recomputed before each first execution."""
    stages: list[list[int]] = [[]]
    done: set[str] = set()
    for action in schedule:
        if isinstance(action, Compute) and action.op in done:
            stages[-1].append(problem.order.index(action.op))
        elif isinstance(action, Compute):
            done.add(action.op)
            stages.append([])
    return stages


def _stays_that_are_used(problem: CostedGraph, schedule: Sequence[Action]) -> Counter[str]:
    """How often each tensor is in RAM: from the beginning or an entry to the next one.

    An entry counts if the tensor is read in that stay or must be in RAM when the step ends; the
    first one always does.
    """
    ops = {op.name: op for op in problem.ops}
    stays = Counter(
        t.name for t in problem.tensors if t.name not in problem.producer and t.home != "storage"
    )
    fresh: set[str] = set()
    for action in schedule:
        entered = {action.tensor} if isinstance(action, PageIn) else set()
        if isinstance(action, Compute):
            used = fresh & set(ops[action.op].reads)
            stays.update(used)
            fresh -= used
            entered = set(ops[action.op].writes)
        fresh |= {name for name in entered if stays[name]}
        stays.update(name for name in entered if not stays[name])
    stays.update(t.name for t in problem.tensors if t.name in fresh and t.persist == "ram")
    return stays


def test_bound_is_not_about_a_schedule_with_one_stay_more() -> None:
    """``x`` makes room for ``o1`` and ``o3``, or else ``k`` does, which is dear to recompute."""
    problem = graph(
        [
            op("o0", "", "k", energy_j=100.0),
            op("o1", "", "a", workspace_bytes=10),
            op("o2", "x", "b"),
            op("o3", "", "c", workspace_bytes=10),
            op("o4", "x", "d"),
            op("o5", "k", "e"),
        ],
        [
            tensor("x", 5, home="ram", page_out=(1.0, 1.0), page_in=(1.0, 1.0)),
            tensor("k", 5),
            *(tensor(name, 0) for name in "abcde"),
        ],
    )
    budget = Budget(ram_bytes=15)
    cheap = with_frees(
        problem,
        actions(
            "compute o0; page_out x; compute o1; page_in x; compute o2; compute o3;"
            "page_in x; compute o4; compute o5"
        ),
    )
    energy_j = verify(problem, cheap, budget).energy_j
    assert energy_j == 108.0
    assert _search(problem, budget).bounds[-1] == 205.0
    kept = [keeps_to(each, problem, cheap) for each in restrictions_of(Problem(problem, budget))]
    assert kept == [True, True, True, False]
    assert _search(problem, budget, 3).bounds[-1] == energy_j


@pytest.mark.slow
@given(data=st.data())
@examples(40)
def test_no_schedule_that_keeps_to_the_restrictions_needs_less_than_the_bound(
    data: st.DataObject,
) -> None:
    problem = data.draw(small_graphs())
    schedule = with_frees(problem, data.draw(action_lists(problem)))
    played = replay(problem, schedule)
    budget = Budget(ram_bytes=played.peak_bytes)
    named = restrictions_of(Problem(problem, budget))
    assume(all(keeps_to(each, problem, schedule) for each in named))
    result = _search(problem, budget)
    assert result.outcome == "optimal"
    assert result.bounds[-1] <= played.energy_j * (1 + 1e-9)


# --- from schedules to solutions ------------------------------------------------------------------


@pytest.mark.slow
@given(problem_and_budget=tight_problems())
@examples(25)
def test_found_schedule_is_a_solution_as_a_hint(
    problem_and_budget: tuple[CostedGraph, Budget],
) -> None:
    problem, budget = problem_and_budget
    result = _search(problem, budget)
    assume(result.schedules)
    for schedule in {result.schedules[0], result.schedules[-1]}:
        model = RetentionModel(Problem(problem, budget), "energy", INTERVALS)
        hint = hint_of(model, schedule)
        assert hint is not None
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.fix_variables_to_their_hinted_value = True
        for variable, value in hint.items():
            model.program.add_hint(model.program.get_int_var_from_proto_index(variable), value)
        assert solver.solve(model.program) == cp_model.OPTIMAL
        again = actions_of(model, solver.value)
        assert verify(problem, again, budget).energy_j == verify(problem, schedule, budget).energy_j


def test_schedule_in_another_order_gives_no_hint() -> None:
    problem = graph(
        [op("one", "x", "a"), op("two", "x", "b"), op("both", "a b", "c")],
        [tensor("x", 1, home="ram"), tensor("a", 1), tensor("b", 1), tensor("c", 1)],
    )
    model = RetentionModel(Problem(problem, Budget(ram_bytes=9)), "energy", INTERVALS)
    assert hint_of(model, keep_everything(problem)) is not None
    swapped = actions("compute two; compute one; free x; compute both; free a; free b; free c")
    replay(problem, swapped)
    assert hint_of(model, swapped) is None


# --- results for a caller -------------------------------------------------------------------------


def _solve(
    problem: CostedGraph,
    budget: Budget,
    *,
    gap: float = 0.0,
    limit_s: float = 600.0,
    starts: tuple[tuple[Action, ...], ...] = (),
    on_actions: Callable[[tuple[Action, ...]], None] = lambda _actions: None,
    on_bound: Callable[[float], None] = lambda _bound: None,
) -> Ending:
    return solve_retention(
        Problem(problem, budget),
        objective="energy",
        gap=gap,
        threads=2,
        deadline=time.monotonic() + limit_s,
        starts=starts,
        on_actions=on_actions,
        on_bound=on_bound,
    )


@pytest.mark.slow
def test_schedules_improve_on_the_given_start() -> None:
    problem = training_chain(9, seed=3)
    budget = tight(problem, 0.25)
    found: list[tuple[Action, ...]] = []
    assert _solve(problem, budget, on_actions=found.append) == "proven"
    middle = found[len(found) // 2]
    again: list[tuple[Action, ...]] = []
    bounds: list[float] = []
    starts = (keep_everything(problem), middle)  # the first does not fit
    ending = _solve(problem, budget, starts=starts, on_actions=again.append, on_bound=bounds.append)
    assert ending == "proven"
    values = [verify(problem, schedule, budget).energy_j for schedule in again]
    assert values[0] == verify(problem, middle, budget).energy_j
    assert values[-1] == verify(problem, found[-1], budget).energy_j
    assert bounds == sorted(bounds)
    assert bounds[-1] <= values[-1]


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1e10, 1e14, 1e17])
def test_rounding_leaves_no_gap_where_costs_are_far_apart(ratio: float) -> None:
    """Costs are rounded to shares of the largest one, which a good schedule may avoid."""
    plain, unit_j = crossed_chain(), 1e8 / ratio
    page = PageCost(time_s=1.0, energy_j=3.1e8)
    paged = [
        t.model_copy(update={"page_in": page, "page_out": page}) if t.page_in else t
        for t in plain.tensors
    ]
    ops = [op.model_copy(update={"energy_j": unit_j * op.energy_j}) for op in plain.ops]
    costed = graph(ops, paged)
    options = SolverOptions(threads=1, formulation="retention", gap=0.0)
    schedule = solve_graph(costed, Budget(ram_bytes=12), options)
    assert schedule.status == "optimal"
    assert schedule.energy_j == pytest.approx(25 * unit_j)
    assert schedule.gap == pytest.approx(0.0, abs=1e-9)
    none_known = search_once(costed, Budget(ram_bytes=12))
    assert none_known == pytest.approx((25 * unit_j, 25 * unit_j), rel=1e-9)


def search_once(costed: CostedGraph, budget: Budget) -> tuple[float, float]:
    """Value and bound of a search that begins with no schedule."""
    values, bounds = [], [0.0]
    problem = Problem(costed, budget)
    ending = solve_retention(
        problem,
        objective="energy",
        gap=0.0,
        threads=1,
        deadline=time.monotonic() + 600.0,
        starts=(),
        on_actions=lambda found: values.append(verify(costed, found, budget).energy_j),
        on_bound=bounds.append,
    )
    assert ending == "proven"
    return min(values), max(bounds)


@pytest.mark.slow
def test_search_ends_when_the_gap_is_reached() -> None:
    problem = training_chain(30)
    budget = tight(problem, 0.9)
    assert _solve(problem, budget, gap=0.9) == "proven"
    assert _solve(problem, budget, gap=0.9, limit_s=-1.0) == "time_limit"


def test_problem_that_does_not_fit_is_infeasible() -> None:
    assert _solve(two_layers(), Budget(ram_bytes=24)) == "infeasible"


@pytest.mark.slow
def test_schedule_records_its_solver_and_restrictions() -> None:
    problem = training_chain(6)
    budget = tight(problem, 0.3)
    options = SolverOptions(formulation="retention", gap=0.0)
    schedule = solve_graph(problem, budget, options)
    assert schedule.status == "optimal"
    assert schedule.energy_j == verify(problem, schedule.actions, budget).energy_j
    assert schedule.solver.formulation == "retention"
    assert schedule.solver.engine == "cp-sat"
    assert schedule.solver.version.startswith("OR-tools CP-SAT")
    assert schedule.restrictions == restrictions_of(Problem(problem, budget))
    assert "each op is computed at most 2 times" in schedule.restrictions


_DRIVER = """
import time
from solver.problem.problem import Problem
from solver.retention.retention import solve_retention
from tests.support.graphs.graph_examples import hard_problem

ending = solve_retention(
    Problem(*hard_problem()), objective="energy", gap=0.0, threads=2, starts=(),
    deadline=time.monotonic() + 600, on_actions=lambda actions: None,
    on_bound=lambda bound: print("bound", flush=True),
    on_version=lambda version: print(version, flush=True),
)
print(ending, flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_ends_the_search_and_its_process() -> None:
    with started_as_by_a_shell("-c", _DRIVER, stdout=subprocess.PIPE) as (process, mark):
        assert process.stdout is not None
        while not process.stdout.readline().startswith("OR-tools"):
            pass
        wait_until(lambda: len(marked(mark)) > 1)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output.splitlines()[-1] == "interrupted"
    assert not marked(mark)

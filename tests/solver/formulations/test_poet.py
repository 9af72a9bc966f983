"""The published POET program: its optimum, its rows, and instantaneous transfers.

Its optimum is that of *compact*; its rows are complete; like POET, it may count transfers as
instantaneous.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cli
from solver.constructed import keep_everything
from solver.constructed.greedy import greedy_schedule
from solver.formulations.poet.formulation import PoetFormulation
from solver.formulations.scaled_costs import Objective
from solver.options import FormulationName, SolverOptions
from solver.problem.graph import CostedGraph, PageCost
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Budget, Compute, PageIn, PageOut, Schedule
from solver.referee.referee import RefereeError, replay, verify
from solver.search.search import Build, Search, build_compact
from solver.solving.solving import solve_graph
from tests.support.documents import write_json
from tests.support.graphs.graph_examples import (
    graph,
    op,
    tensor,
    tight,
    training_chain,
    unconstrained_peak,
)
from tests.support.graphs.graph_strategies import (
    action_lists,
    examples,
    least_energy_by_exhaustion,
    small_graphs,
    tight_problems,
)

both = pytest.mark.parametrize("formulation", ["compact", "poet"])


def _options(formulation: FormulationName) -> SolverOptions:
    return SolverOptions(formulation=formulation, gap=0.0, threads=1)


# --- the optimum ----------------------------------------------------------------------------------


def _build_poet(problem: Problem, objective: Objective, _simplify: bool) -> PoetFormulation:
    assert objective != "memory"
    return PoetFormulation(problem, objective)


def _searched(problem: CostedGraph, budget: Budget, build: Build) -> Search:
    """The search alone, started from a trivial bound, until it is proven or infeasible."""
    indexed = Problem(problem, budget)
    options = SolverOptions(gap=0.0, threads=1)
    search = Search(indexed, "energy", options, build=build, bound=indexed.least_energy_j)
    ending = search.run(float("inf"))
    assert ending == ("infeasible" if search.actions is None else "proven")
    if search.actions is not None:
        assert verify(problem, search.actions, budget).energy_j == search.value
    return search


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_poet_optimum_equals_compact_optimum() -> None:
    overheads_j: list[float] = []

    @given(problem_and_budget=tight_problems(), instantaneous=st.booleans())
    @examples(12)
    def compare(problem_and_budget: tuple[CostedGraph, Budget], instantaneous: bool) -> None:
        problem, budget = problem_and_budget
        budget = budget.model_copy(update={"instantaneous_paging": instantaneous})
        poet = _searched(problem, budget, _build_poet)
        compact = _searched(problem, budget, build_compact)
        assert (poet.value is None) == (compact.value is None)
        # POET's rows are complete: none is added after the first solution.
        assert poet.rounds <= 1
        if poet.value is not None:
            assert poet.value == pytest.approx(compact.value)
            overheads_j.append(poet.value - replay(problem, keep_everything(problem)).energy_j)

    compare()
    # Most examples must have needed recomputation or paging.
    assert sum(overhead_j > 0 for overhead_j in overheads_j) > 6


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_poet_optimum_of_a_training_step_equals_compact_optimum() -> None:
    problem = training_chain(5)
    budget = tight(problem, 0.6, deadline_s=1.3 * sum(op.time_s for op in problem.ops))
    poet = _searched(problem, budget, _build_poet)
    assert poet.value is not None
    assert poet.value > sum(op.energy_j for op in problem.ops)
    assert poet.value == pytest.approx(_searched(problem, budget, build_compact).value)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
@given(problem_and_budget=tight_problems())
@examples(7)
def test_instantaneous_paging_is_paging_that_takes_no_time(
    problem_and_budget: tuple[CostedGraph, Budget],
) -> None:
    problem, budget = problem_and_budget
    budget = budget.model_copy(update={"deadline_s": len(problem.ops) + 1.0})
    least_j = least_energy_by_exhaustion(_without_transfer_times(problem), budget)
    instantaneous = budget.model_copy(update={"instantaneous_paging": True})
    found = _searched(problem, instantaneous, _build_poet)
    assert found.value == (None if least_j is None else pytest.approx(least_j))


def _without_transfer_times(problem: CostedGraph) -> CostedGraph:
    def timeless(cost: PageCost | None) -> PageCost | None:
        return None if cost is None else cost.model_copy(update={"time_s": 0.0})

    tensors = tuple(
        t.model_copy(update={"page_in": timeless(t.page_in), "page_out": timeless(t.page_out)})
        for t in problem.tensors
    )
    return CostedGraph(name=problem.name, ops=problem.ops, tensors=tensors)


@pytest.mark.slow
@both
def test_overwritten_tensor_must_be_recomputed_before_it_is_read(
    formulation: FormulationName,
) -> None:
    """``r`` has no room while ``big`` is in RAM, and was computed in place of ``a``.

    Recomputing both costs 11 J, although there would have been room for ``a``.
    """
    problem = graph(
        [
            op("conv", "x", "a", energy_j=10.0),
            op("relu", "a", "r", in_place={"r": "a"}),
            op("grow", "x", "big"),
            op("shrink", "big", "small"),
            op("last", "r small", "end"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("a", 1),
            tensor("r", 6),
            tensor("big", 8),
            tensor("small", 1),
            tensor("end", 1),
        ],
    )
    schedule = solve_graph(problem, Budget(ram_bytes=11), _options(formulation))
    assert schedule.energy_j == pytest.approx(14.0 + 11.0)


@pytest.mark.slow
@both
def test_paged_in_tensor_needs_ram_from_its_first_reader_on(
    formulation: FormulationName,
) -> None:
    """``i`` has room when ``last`` reads it, but not while ``derive`` is recomputed for ``last``.

    With one byte more ``p`` can stay, and nothing is recomputed.
    """
    problem = graph(
        [
            op("make", "x", "i", recomputable=False),
            op("derive", "i", "p", workspace_bytes=4),
            op("grow", "x", "big"),
            op("shrink", "big", "small"),
            op("hold", "small", "z", workspace_bytes=7, recomputable=False),
            op("last", "i p z", "end"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("i", 4, page_out=(1.0, 1.0), page_in=(1.0, 1.0)),
            tensor("p", 1),
            tensor("big", 11),
            tensor("small", 1),
            tensor("z", 4),
            tensor("end", 1),
        ],
    )
    tight, options = Budget(ram_bytes=12), _options(formulation)
    assert solve_graph(problem, tight, options, with_advice=False).status == "exhausted"
    # The search for the smallest budget proves it for schedules in any order.
    schedule = solve_graph(problem, tight, options)
    assert (schedule.status, schedule.restrictions) == ("infeasible", ())
    assert schedule.smallest_ram_bytes == schedule.smallest_ram_bound_bytes == 13


# --- its columns ----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_poet_has_the_columns_of_the_paper_below_the_diagonal(length: int) -> None:
    ops = [op(f"f{k}", f"a{k - 1}" if k else "", f"a{k}") for k in range(length)]
    page = (1.0, 1.0)
    tensors = [tensor(f"a{k}", 1, page_out=page, page_in=page) for k in range(length)]
    formulation = PoetFormulation(Problem(graph(ops, tensors), Budget(ram_bytes=length)))
    poet, program = formulation.columns, formulation.program
    below = length * (length - 1) // 2
    # R, M_out and U include the diagonal; S_ram, S_sd and M_in do not: tensors that exist at the
    # beginning of a stage were written in an earlier one.
    assert len(poet.r) == len(poet.m_out) == len(poet.u) == below + length
    assert len(poet.s_ram) == len(poet.s_sd) == len(poet.m_in) == below
    # One per reading op and stage after that of its first execution.
    assert len(poet.free_e) == (length - 1) * (length - 2) // 2
    published = 6 * length**2 + length * (length - 1)
    assert sum(program.integer) + len(poet.u) <= published
    integer = {column for column, whole in enumerate(program.integer) if whole}
    assert integer == {
        column
        for table in (poet.r, poet.s_ram, poet.s_sd, poet.m_in, poet.m_out, poet.free_e)
        for column in table.values()
    }


# --- schedules as solutions -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_schedule_survives_being_written_as_a_solution() -> None:
    encoded = [0, 0]

    @given(data=st.data(), problem=small_graphs(), spare_bytes=st.integers(0, 4))
    @examples(150)
    def encode(data: st.DataObject, problem: CostedGraph, spare_bytes: int) -> None:
        actions = with_frees(problem, data.draw(action_lists(problem)))
        before = replay(problem, actions)
        budget = Budget(ram_bytes=before.peak_bytes + spare_bytes)
        poet = PoetFormulation(Problem(problem, budget))
        values = poet.encode(actions)
        encoded[values is not None] += 1
        if values is not None:
            after = verify(problem, poet.decode(values), budget)
            assert poet.costs.value(poet.program.objective(values)) == pytest.approx(after.energy_j)
            assert after.energy_j <= before.energy_j * (1 + 1e-9)

    encode()
    assert encoded[True] > encoded[False]


@pytest.mark.slow
@given(problem_and_budget=tight_problems())
@examples(25)
def test_greedy_start_of_the_search_is_a_solution(
    problem_and_budget: tuple[CostedGraph, Budget],
) -> None:
    problem = Problem(*problem_and_budget)
    actions = greedy_schedule(problem)
    if actions is None:
        return
    poet = PoetFormulation(problem)
    values = poet.encode(actions)
    if values is not None:
        energy_j = poet.costs.value(poet.program.objective(values))
        assert energy_j == pytest.approx(verify(problem.graph, actions, problem.budget).energy_j)


def test_a_schedule_over_budget_is_no_solution() -> None:
    problem = training_chain(3)
    everything = keep_everything(problem)
    peak_bytes = unconstrained_peak(problem)
    roomy = PoetFormulation(Problem(problem, Budget(ram_bytes=peak_bytes)))
    too_tight = PoetFormulation(Problem(problem, Budget(ram_bytes=peak_bytes - 1)))
    assert roomy.encode(everything) is not None
    assert too_tight.encode(everything) is None


def test_a_schedule_in_another_order_is_no_solution() -> None:
    problem = graph(
        [op("f", "", "a"), op("g", "", "b"), op("h", "a b", "c")],
        [tensor("a", 1), tensor("b", 1), tensor("c", 1)],
    )
    poet = PoetFormulation(Problem(problem, Budget(ram_bytes=3)))
    assert poet.encode(with_frees(problem, [Compute(op=name) for name in "fgh"])) is not None
    assert poet.encode(with_frees(problem, [Compute(op=name) for name in "gfh"])) is None


# --- transfers that take no time ------------------------------------------------------------------


def _must_page() -> CostedGraph:
    """Four seconds of computing, and a tensor that must be paged out and in for a second each.

    ``a`` has no room while ``big`` is in RAM, and cannot be recomputed.
    """
    return graph(
        [
            op("make", "x", "a", recomputable=False),
            op("grow", "x", "big"),
            op("shrink", "big", "small"),
            op("last", "a small", "end"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("a", 4, page_out=(1.0, 2.0), page_in=(1.0, 1.0)),
            tensor("big", 8),
            tensor("small", 1),
            tensor("end", 1),
        ],
    )


@pytest.mark.slow
@both
def test_instantaneous_paging_counts_no_time_against_the_deadline(
    formulation: FormulationName,
) -> None:
    def solve(**budget: object) -> Schedule:
        fields = {"ram_bytes": 10, "deadline_s": 4.0, **budget}
        options = replace(_options(formulation), order="given")
        return solve_graph(_must_page(), Budget.model_validate(fields), options)

    counted = solve()
    assert counted.status == "exhausted"
    assert counted.smallest_deadline_s == pytest.approx(6.0)
    instantaneous = solve(instantaneous_paging=True)
    assert instantaneous.status == "optimal"
    assert instantaneous.energy_j == pytest.approx(7.0)
    # The schedule still states its true time.
    assert instantaneous.time_s == pytest.approx(6.0)
    moved = [(s.do, s.tensor) for s in instantaneous.actions if isinstance(s, PageIn | PageOut)]
    assert moved == [("page_out", "a"), ("page_in", "a")]
    late = solve(instantaneous_paging=True, deadline_s=3.9)
    assert late.status == "infeasible"  # computing alone takes longer
    assert late.smallest_deadline_s == pytest.approx(4.0)


def test_the_referee_keeps_instantaneous_paging_to_the_time_of_computing() -> None:
    problem = _must_page()
    actions = solve_graph(problem, Budget(ram_bytes=10), _options("compact")).actions
    counted = Budget(ram_bytes=10, deadline_s=4.0)
    instantaneous = counted.model_copy(update={"instantaneous_paging": True})
    with pytest.raises(RefereeError, match="takes 6 s, the deadline is 4 s"):
        verify(problem, actions, counted)
    assert verify(problem, actions, instantaneous).time_s == pytest.approx(6.0)
    with pytest.raises(RefereeError, match="takes 4 s, the deadline is 3 s"):
        verify(problem, actions, instantaneous.model_copy(update={"deadline_s": 3.0}))


@pytest.mark.slow
@pytest.mark.parametrize(("instantaneous", "least_s"), [(False, 6.0), (True, 4.0)])
def test_poet_search_finds_the_least_time(instantaneous: bool, least_s: float) -> None:
    problem = Problem(_must_page(), Budget(ram_bytes=10, instantaneous_paging=instantaneous))
    search = Search(problem, "time", _options("poet"), build=_build_poet)
    assert search.run(float("inf")) == "proven"
    assert search.value == pytest.approx(least_s)


# --- the command line -----------------------------------------------------------------------------


@pytest.mark.slow
@both
def test_schedule_names_its_formulation(
    formulation: FormulationName,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "graph.json"
    write_json(file, _must_page())
    options = ["--formulation", formulation, "--instantaneous-paging", "--deadline", "1x", "--json"]
    assert cli.main(["solve", "--graph", str(file), "--ram-budget", "10", *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["solver"]["formulation"] == formulation
    assert document["budget"]["instantaneous_paging"] is True
    assert document["time_s"] > document["budget"]["deadline_s"]

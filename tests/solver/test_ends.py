"""What a search has found before it ends is returned, whatever ends it and wherever."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any, Self

import pytest

from devices.errors import BuildFailed, EngineFailed
from solver.annealing import Annealer
from solver.constructed.greedy import greedy_schedule
from solver.engines.engine import Engine
from solver.engines.messages import EngineMessage, Incumbent, Silence
from solver.engines.proofs import Proof
from solver.options import FormulationName, SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget
from solver.referee.referee import verify
from solver.search import search
from solver.search.crossing_search import CrossingSearch, FalseBound, News, NoSchedule, Proven
from solver.search.search import Search
from solver.solving import named
from solver.solving.auto import annealers, bounds
from solver.solving.auto import search as auto
from solver.solving.solving import solve_graph
from solver.time_limit import OutOfTime
from tests.support.boards.processes import wait_until
from tests.support.graphs.graph_examples import tight, training_chain

Began = list[Annealer]
both_stops = pytest.mark.parametrize(
    ("stop", "ended_by"), [(OutOfTime, "time_limit"), (KeyboardInterrupt, "interrupted")]
)
OPTIONS = SolverOptions(gap=0.0, threads=2, addresses=False)


def without_paging() -> tuple[CostedGraph, Budget]:
    """A problem in which something must be recomputed."""
    problem = training_chain(12)
    return problem, tight(problem, 0.5, paging=False)


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> Began:
    """The annealing threads that have begun; nothing else finds a schedule."""
    begun: Began = []

    class Recorded(Annealer):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)

    def nothing(_problem: Problem, **_options: Any) -> None:
        return None

    monkeypatch.setattr(annealers, "Annealer", Recorded)
    monkeypatch.setattr(auto, "greedy_schedule", nothing)
    return begun


def wait_for_annealing(began: Began) -> None:
    wait_until(lambda: began[0].best_cost < inf)


@both_stops
def test_what_annealing_found_while_a_program_was_built_is_returned(
    stop: type[BaseException], ended_by: str, began: Began, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: Any, **__: Any) -> None:
        wait_for_annealing(began)
        raise stop

    monkeypatch.setattr(bounds, "CrossingSearch", build)
    problem, budget = without_paging()
    schedule = solve_graph(problem, budget, OPTIONS)
    assert (schedule.status, schedule.ended_by) == ("feasible", ended_by)
    assert schedule.energy_j == verify(problem, schedule.actions, budget).energy_j


def test_what_annealing_found_is_returned_if_ctrl_c_comes_while_it_is_checked(
    began: Began, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer = Search.offer_if_valid
    stopped: list[bool] = []

    def stop_once(search: Search, actions: tuple[Action, ...]) -> None:
        if began and began[0].best_cost < inf and not stopped:
            stopped.append(True)
            raise KeyboardInterrupt
        offer(search, actions)

    class Waiting(CrossingSearch):
        def run(self, *_: Any) -> Iterator[News]:
            wait_for_annealing(began)
            yield Silence()

    monkeypatch.setattr(bounds, "CrossingSearch", Waiting)
    monkeypatch.setattr(Search, "offer_if_valid", stop_once)
    schedule = solve_graph(*without_paging(), OPTIONS)
    assert stopped
    assert (schedule.status, schedule.ended_by) == ("feasible", "interrupted")


def test_a_schedule_found_last_refutes_that_none_exists(
    began: Began, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lying(CrossingSearch):
        def run(self, *_: Any) -> Iterator[News]:
            yield NoSchedule(Proof.of(self.crossing.program, None))

    def gives_up(*_: Any, **__: Any) -> None:
        wait_for_annealing(began)

    monkeypatch.setattr(bounds, "CrossingSearch", Lying)
    monkeypatch.setattr(bounds, "search_states", gives_up)
    schedule = solve_graph(*without_paging(), OPTIONS)
    assert (schedule.status, schedule.ended_by) == ("feasible", None)
    assert schedule.notes == (
        "the engine called a problem infeasible that has a schedule; its proofs were discarded",
    )


def test_a_bound_that_a_solution_of_its_program_refutes_is_proven_again_without_presolve(
    began: Began, monkeypatch: pytest.MonkeyPatch
) -> None:
    presolved: list[bool] = []

    class Hasty(CrossingSearch):
        def __init__(self, *words: Any, presolve: bool, **options: Any) -> None:
            super().__init__(*words, presolve=presolve, **options)
            presolved.append(presolve)

        def run(self, *words: Any) -> Iterator[News]:
            if len(presolved) > 1:
                yield from super().run(*words)
                return
            yield Proven(1e6)
            yield FalseBound()

    monkeypatch.setattr(bounds, "CrossingSearch", Hasty)
    schedule = solve_graph(*without_paging(), OPTIONS)
    assert presolved[:2] == [True, False]
    assert began
    assert (schedule.energy_bound_j or 0.0) < 1e6
    assert "proved a bound that a solution of its program refutes" in schedule.notes[0]


@both_stops
def test_what_annealing_found_beside_compact_is_returned(
    stop: type[BaseException], ended_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = training_chain(12)
    budget = tight(problem, 0.5)
    better = greedy_schedule(Problem(problem, budget))
    assert better is not None

    class Beside:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.news = [better]

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def offer(self, _: tuple[Action, ...]) -> None:
            pass

        def found(self) -> tuple[Action, ...] | None:
            return self.news.pop() if self.news else None

    def build(*_: Any, **__: Any) -> None:
        raise stop

    monkeypatch.setattr(named, "Annealer", Beside)
    monkeypatch.setattr(named, "greedy_schedule", lambda _: None)
    monkeypatch.setattr(search, "CompactFormulation", build)
    options = replace(OPTIONS, formulation="compact")
    schedule = solve_graph(problem, budget, options)
    assert (schedule.actions, schedule.ended_by) == (better, ended_by)


def test_what_an_engine_found_before_it_died_is_returned_without_annealing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_compiler(_: Any) -> None:
        raise BuildFailed("no C compiler")

    class Dying(Engine):
        def minimise(self, *arguments: Any, **options: Any) -> Iterator[EngineMessage]:
            for message in super().minimise(*arguments, **options):
                yield message
                if isinstance(message, Incumbent) and not options["relax"]:
                    raise EngineFailed("the engine was killed")

    monkeypatch.setattr(annealers.Annealers, "begin", no_compiler)
    monkeypatch.setattr(auto, "greedy_schedule", lambda *_, **__: None)
    monkeypatch.setattr(search, "Engine", Dying)
    problem, budget = without_paging()
    schedule = solve_graph(problem, budget, replace(OPTIONS, order="given"))
    assert schedule.energy_j == verify(problem, schedule.actions, budget).energy_j
    assert schedule.notes == ("the engine was killed; what was found and proven before is kept",)


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["auto", "compact", "poet", "retention"])
def test_a_start_is_returned_if_ctrl_c_comes_while_the_next_one_is_checked(
    formulation: FormulationName, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = training_chain(12)
    budget = tight(problem, 0.5)
    start = greedy_schedule(Problem(problem, budget))
    assert start is not None
    offer = Search.offer_if_valid

    stopped: list[bool] = []

    def stop_after_start(search: Search, actions: tuple[Action, ...]) -> None:
        if search.actions is not None and not stopped:
            stopped.append(True)
            raise KeyboardInterrupt
        offer(search, actions)

    monkeypatch.setattr(Search, "offer_if_valid", stop_after_start)
    options = replace(OPTIONS, formulation=formulation)
    schedule = solve_graph(problem, budget, options, starts=[start, start])
    assert (schedule.actions, schedule.ended_by) == (start, "interrupted")

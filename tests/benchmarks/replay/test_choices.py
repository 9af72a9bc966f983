"""The page that compares schedules chosen with different costs: its searches and ratios."""

from __future__ import annotations

import pytest

from benchmarks.replay import choices, turns
from benchmarks.replay.cases import Network, Problem, Profiled
from benchmarks.replay.choices import Row, choices_page
from benchmarks.replay.turns import Question, Scheduled
from devices.description import load_description
from devices.errors import NoScheduleFound
from profiler.run.options import ProfileOptions
from solver.constructed import keep_everything
from solver.problem.schedule import Action, Schedule
from tests.support.graphs.profiles import made_up_profile
from tests.support.graphs.schedules import schedule_of
from tests.support.progress import ignore

NETWORK = Network("digits", 1)


def ask(*shares: float) -> Question:
    options = ProfileOptions(blocks=1)
    return Question(load_description("local"), [NETWORK], shares, 1, options, 1.0, 1)


def solve(problem: Problem, *_: object) -> Schedule:
    """The step that keeps everything, in place of a search."""
    return schedule_of(problem.graph, keep_everything(problem.graph))


@pytest.fixture(autouse=True)
def _no_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured, searched or run."""

    def measured(question: Question, network: Network, share: float, *_: object) -> Row:
        by_costs = {name: [1.0, 1.0] for name in ("in place", "warm", "cold", "refined")}
        return Row(network, share, by_costs, [1.0, 1.0], "s", 1.0)

    profile = made_up_profile(list(NETWORK.step().costed_specs))
    monkeypatch.setattr(turns, "profiled", lambda *_: Profiled(NETWORK, profile))
    monkeypatch.setattr(choices, "solved", solve)
    monkeypatch.setattr(
        choices, "_refined", lambda _q, _k, problem, _p: Scheduled(problem.graph, solve(problem))
    )
    monkeypatch.setattr(choices, "_measured", measured)


def row(in_place: list[float], refined: list[float], again: list[float]) -> Row:
    """A case whose schedules with costs warm and cold are worse than the others."""
    by_costs = {"in place": in_place, "warm": [9.0] * 3, "cold": [8.0] * 3, "refined": refined}
    return Row(Network("resnet8", 1), 0.5, by_costs, again, "s", 1.25)


def test_the_chosen_schedule_is_compared_with_the_best_round_by_round() -> None:
    """The second round was disturbed for both, which their ratio does not show."""
    found = row([2.0, 4.0, 2.2], [1.0, 2.0, 1.1], [2.0, 4.2, 2.2])
    assert found.over_best == [2.0, 2.0, 2.0]
    assert found.noise == [1.0, 1.05, 1.0]
    assert found.cells[-3:-1] == ("2.000 (2.000 to 2.000)", "1.000 (1.000 to 1.050)")


def test_a_schedule_that_is_the_best_itself_is_as_good_as_the_best() -> None:
    found = row([2.0, 2.1, 2.2], [2.0, 2.1, 2.2], [2.0, 2.1, 2.2])
    assert found.cells == (
        *("resnet8, batch 1", "50%", "2.1 s", "9 s", "8 s", "2.1 s"),
        *("1", "1", "1.250"),
    )


def test_every_kind_of_costs_is_searched_again_from_all_schedules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refined costs have a graph of their own, of the rounds of ``tune``."""
    refined: list[Problem] = []
    again: list[tuple[Problem, int]] = []

    def search(problem: Problem, _limit_s: float, starts: tuple[Action, ...] = ()) -> Schedule:
        if starts:
            again.append((problem, len(starts)))
        return solve(problem)

    def refine(_question: Question, _known: Profiled, problem: Problem, _: object) -> Scheduled:
        graph = problem.graph.model_copy(update={"name": "refined"})
        refined.append(problem)
        return Scheduled(graph, schedule_of(graph, keep_everything(graph)))

    monkeypatch.setattr(choices, "solved", search)
    monkeypatch.setattr(choices, "_refined", refine)
    choices_page(ask(0.5), [], ignore)
    assert [starts for _, starts in again] == [4, 4, 4, 4]
    assert again[-1][0].graph.name == "refined"
    assert again[-1][0].budget_bytes == refined[0].budget_bytes


def test_a_case_that_fails_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def refine(_question: Question, _known: Profiled, problem: Problem, _: object) -> Scheduled:
        if refined:
            raise NoScheduleFound("none was found in time")
        refined.append(problem)
        return Scheduled(problem.graph, solve(problem))

    refined: list[Problem] = []
    monkeypatch.setattr(choices, "_refined", refine)
    (table,) = choices_page(ask(0.5, 0.3), [], ignore).tables
    assert [row[2] for row in table.rows] == ["1 s", "failed: none was found in time"]
    assert table.note.endswith("1 of 2 cases have no figures.")

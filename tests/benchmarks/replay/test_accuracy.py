"""The benchmark of predictions: cases that fail have rows, too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.replay import accuracy
from benchmarks.replay.accuracy import Question, accuracy_page
from benchmarks.replay.cases import Network, Problem, Profiled
from devices.description import load_description
from devices.errors import MeasurementInvalid
from profiler.run.options import ProfileOptions
from replay.runs import Replayed
from solver.constructed import keep_everything
from solver.problem.schedule import Schedule
from tests.support.graphs.profiles import made_up_profile
from tests.support.graphs.schedules import schedule_of
from tests.support.progress import ignore

RUN = SimpleNamespace(sound_steps=[SimpleNamespace(time_s=1.0, spans=())])
REPLAYED = SimpleNamespace(
    plan=SimpleNamespace(arena_bytes=1, actions=()),
    timed=RUN,
    watched=SimpleNamespace(sound_steps=[]),
    measured=SimpleNamespace(counters=SimpleNamespace(touched_bytes=1)),
    checks=(),
    unscheduled=None,
)
DISTURBED = MeasurementInvalid("no step was undisturbed")


def measure(_description: object, network: Network, *_: object) -> Profiled:
    """A profile in place of a measured one; none of `linear`."""
    if network.model == "linear":
        raise DISTURBED
    return Profiled(network, made_up_profile(list(network.step().costed_specs)))


def solve(problem: Problem, *_: object) -> Schedule:
    return schedule_of(problem.graph, keep_everything(problem.graph))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Replayed | None]:
    """What the runs of schedules are: steps of a second, or None for a run that fails."""
    waiting: list[Replayed | None] = []

    def run(*_: object) -> Replayed:
        found = waiting.pop(0)
        if found is None:
            raise DISTURBED
        return found

    monkeypatch.setattr(accuracy, "profiled", measure)
    monkeypatch.setattr(accuracy, "solved", solve)
    monkeypatch.setattr(accuracy, "replay_schedule", run)
    return waiting


def ask(again_s: float | None) -> Question:
    networks = [Network("linear", 1), Network("digits", 1)]
    options = ProfileOptions(blocks=1)
    return Question(load_description("local"), networks, [0.5, 0.3], 1, options, 1.0, again_s)


def test_a_case_that_fails_has_a_row_and_is_counted(runs: list[Replayed | None]) -> None:
    runs += [None, cast(Replayed, REPLAYED)]
    (table,) = accuracy_page(ask(None), [], ignore).tables
    failed = "failed: no step was undisturbed"
    assert [(row[0], row[1][:3], row[2]) for row in table.rows] == [
        ("linear, batch 1", "50%", failed),
        ("linear, batch 1", "30%", failed),
        ("digits, batch 1", "50%", failed),
        ("digits, batch 1", "30%", "ram"),
    ]
    assert table.note.endswith("in the worst. 3 of 4 cases failed.")


def test_a_second_run_that_fails_is_shown_and_counted(runs: list[Replayed | None]) -> None:
    replayed = cast(Replayed, REPLAYED)
    runs += [replayed, replayed, None, replayed]
    (table,) = accuracy_page(ask(0.0), [], ignore).tables
    again = table.head.index("again")
    assert [row[again] for row in table.rows[2:]] == ["failed", "1 s"]
    assert "1 of 2 cases failed when they were run again." in table.note

"""Schedules as files: format 1 loads, and the end of a search is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from devices.documents.document import DocumentError, read_json
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Budget, EndedBy, PageIn, PageOut, Schedule
from solver.referee.addresses import verify_addresses
from solver.referee.referee import verify
from solver.solving.solving import solve_graph
from tests.support.documents import write_json
from tests.support.graphs.graph_examples import hard_problem, tight, training_chain, two_layers
from tests.support.paths import ROOT

REFERENCES = ROOT / "tests" / "references"
FIRST = REFERENCES / "schedule-1.json"
"""A file of ``schedule/1`` as the program wrote it then, with its graph in another file.

It has addresses, a page-out and a page-in beside ops, and an op computed twice."""


def changed(tmp_path: Path, **changes: object) -> Path:
    """A copy of the file with other values; None removes a key."""
    document: dict[str, Any] = {**json.loads(FIRST.read_text()), **changes}
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not None}))
    return path


# --- files of the first format ------------------------------------------------------------------


def test_a_schedule_of_the_first_format_loads_and_is_valid() -> None:
    schedule = read_json(FIRST, Schedule)
    assert schedule.schema_ == "schedule/2"
    assert len(schedule.actions) == len(json.loads(FIRST.read_text())["steps"]) == 26
    assert schedule.ended_by is None
    assert any(isinstance(action, PageOut) and action.asynchronous for action in schedule.actions)
    assert any(isinstance(action, PageIn) and action.asynchronous for action in schedule.actions)
    graph = read_json(REFERENCES / "schedule-1.graph.json", CostedGraph)
    played = verify(graph, schedule.actions, schedule.budget)
    assert (played.energy_j, played.time_s) == (schedule.energy_j, schedule.time_s)
    assert schedule.resident_address is not None
    assert schedule.arena_bytes is not None
    verify_addresses(
        graph, schedule.actions, schedule.resident_address, schedule.arena_bytes, "all"
    )


def test_schedule_of_the_first_format_is_written_in_the_second(tmp_path: Path) -> None:
    schedule = read_json(FIRST, Schedule)
    path = write_json(tmp_path / "again.json", schedule)
    document = json.loads(path.read_text())
    assert document["schema"] == "schedule/2"
    assert "steps" not in document
    assert read_json(path, Schedule) == schedule


def test_a_schedule_of_the_first_format_without_steps_loads(tmp_path: Path) -> None:
    assert read_json(changed(tmp_path, steps=None, status="infeasible"), Schedule).actions == ()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"schema": "schedule/2"}, "steps: unknown key"),
        ({"schema": "schedule/3"}, "schema: found 'schedule/3'; did you mean schedule/2?"),
        ({"actions": []}, "steps: unknown key"),
        ({"steps": [{"do": "wait"}]}, "actions[0].do: found 'wait'"),
    ],
    ids=["old key, new schema", "unknown schema", "old and new key", "bad entry"],
)
def test_file_of_neither_format_is_refused_in_one_sentence(
    tmp_path: Path, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(DocumentError) as refused:
        read_json(changed(tmp_path, **changes), Schedule)
    assert sentence in str(refused.value)


# --- how a search ended -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["auto", "compact", "poet", "retention"])
@pytest.mark.parametrize(("gap", "ended_by"), [(0.0, "proven"), (0.3, "gap")])
def test_proof_of_the_optimum_differs_from_reaching_the_gap(
    formulation: Any, gap: float, ended_by: EndedBy
) -> None:
    problem = training_chain(6)
    options = SolverOptions(formulation=formulation, gap=gap, threads=1)
    schedule = solve_graph(problem, tight(problem, 0.2), options)
    assert schedule.status == "optimal"
    assert schedule.ended_by == ended_by
    assert schedule.gap is not None
    assert (schedule.gap > 1e-8) == (ended_by == "gap")


def test_schedule_without_a_search_is_proven() -> None:
    problem = training_chain(6)
    schedule = solve_graph(problem, tight(problem, 1.0), SolverOptions(gap=0.3))
    assert (schedule.status, schedule.ended_by) == ("optimal", "proven")


@pytest.mark.parametrize("formulation", ["auto", "compact"])
def test_infeasible_schedule_is_proven(formulation: Any) -> None:
    options = SolverOptions(formulation=formulation, threads=1)
    schedule = solve_graph(two_layers(), Budget(ram_bytes=5), options)
    assert (schedule.status, schedule.ended_by) == ("infeasible", "proven")


@pytest.mark.parametrize("formulation", ["auto", "compact", "poet", "retention"])
def test_a_time_limit_that_ended_the_search_is_named(formulation: Any) -> None:
    problem = training_chain(12)
    options = SolverOptions(formulation=formulation, gap=0.0, threads=1, time_limit_s=0.02)
    schedule = solve_graph(problem, tight(problem, 0.2), options)
    assert schedule.status in ("feasible", "no_solution")
    assert schedule.ended_by == "time_limit"


def test_a_time_limit_that_was_not_reached_is_not_named() -> None:
    problem = training_chain(6)
    schedule = solve_graph(problem, tight(problem, 0.2), SolverOptions(gap=0.3, time_limit_s=600.0))
    assert schedule.ended_by == "gap"


@pytest.mark.slow
def test_search_that_runs_out_of_methods_records_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.solving.auto.search.MOST_OPS", 0)
    problem, budget = hard_problem()
    schedule = solve_graph(problem, budget, SolverOptions(gap=0.0, threads=1, addresses=False))
    assert (schedule.status, schedule.ended_by) == ("feasible", None)

"""Schedules that a campaign takes from those that `solve` has written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from campaigns.design.opening import open_campaign
from campaigns.running.solving import SolveJob, costed_network
from devices.errors import InputError
from devices.library import resolve_profile
from devices.results import Results
from solver.options import SolverOptions
from solver.problem.schedule import Schedule
from solver.solving.solving import solve_graph
from tests.support.campaigns import TRIED
from tests.support.paths import REFERENCES

Taken = Callable[[Schedule], Schedule | None]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Schedule, Taken]:
    """A schedule for a campaign's only cell, and what the campaign takes if one was written."""
    results = Results(tmp_path_factory.mktemp("results"))
    path = results.root / "tried.yaml"
    path.write_text(yaml.safe_dump({**TRIED, "ram_budgets": ["100%"], "methods": ["joulewright"]}))
    opened = open_campaign(str(path), results)
    (cell,) = opened.design.cells
    level = opened.design.network_by_name[cell.network]
    method = opened.design.method_by_name[cell.method]
    profile = resolve_profile("m4", results.profiles)
    costed = costed_network(level, cell.batch, profile, None, "all", method)
    job = SolveJob.of(cell, opened.design, costed)
    schedule = solve_graph(costed.subject.graph, job.search.budget, SolverOptions(threads=1))

    def taken(known: Schedule) -> Schedule | None:
        return SolveJob.of(cell, opened.design, replace(costed, known=(known,))).search.known

    return schedule, taken


def test_a_schedule_that_is_as_good_as_asked_is_not_searched_again(
    found: tuple[Schedule, Taken],
) -> None:
    schedule, taken = found
    assert schedule.status == "optimal"
    assert taken(schedule) is schedule


def test_a_network_that_was_replaced_while_the_campaign_ran_is_refused(tmp_path: Path) -> None:
    exported = REFERENCES / "exported"
    network = tmp_path / "net.pt2"
    shutil.copy(exported / "classifier.pt2", network)
    path = tmp_path / "tried.yaml"
    path.write_text(yaml.safe_dump({**TRIED, "networks": ["net.pt2"]}))
    design = open_campaign(str(path), Results(tmp_path)).design
    (level,), profile = design.networks, resolve_profile("m4", tmp_path)
    shutil.copy(exported / "keywords.pt2", network)
    with pytest.raises(InputError, match=r"net\.pt2: the file has changed since this call"):
        costed_network(level, None, profile, None, "all", design.methods[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"arena_bytes": None},  # solve --no-addresses
        {"any_order_bound_j": 0.0},  # solve --order given: its gap is one to that order
        {"gap": 0.5, "any_order_bound_j": 0.0},
        {"budget": None},
    ],
)
def test_a_schedule_that_answers_something_else_is_searched_again(
    found: tuple[Schedule, Taken], changes: dict[str, object]
) -> None:
    schedule, taken = found
    smaller = schedule.budget.model_copy(update={"ram_bytes": schedule.budget.ram_bytes - 1})
    if "budget" in changes:
        changes = {"budget": smaller}
    assert taken(schedule.model_copy(update=changes)) is None

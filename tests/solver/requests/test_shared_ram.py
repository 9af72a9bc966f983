"""Schedules that fit with records whose size depends on them, found by a made-up search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from solver.constructed import keep_everything
from solver.problem.schedule import Budget, Schedule
from solver.solving.shared_ram import RamUse, solve_in_shared_ram
from tests.support.graphs.graph_examples import two_layers
from tests.support.graphs.schedules import schedule_of

GRAPH = two_layers()
ASKED = Budget(ram_bytes=100_000)


def found(budget: Budget, arena_bytes: int) -> Schedule:
    made = schedule_of(GRAPH, keep_everything(GRAPH))
    return made.model_copy(update={"budget": budget, "arena_bytes": arena_bytes})


def nothing(budget: Budget) -> Schedule:
    made = schedule_of(GRAPH, keep_everything(GRAPH))
    return Schedule(
        graph=GRAPH.name,
        graph_sha256=made.graph_sha256,
        energy_source=made.energy_source,
        status="infeasible",
        ended_by="proven",
        solver=made.solver,
        budget=budget,
        bound_covers=made.bound_covers,
    )


@dataclass(frozen=True)
class Firmware:
    """RAM of a board whose records of a schedule are larger, the less RAM it leaves unused."""

    records_bytes: Callable[[int], int]

    def has_room(self, _budget: Budget) -> bool:
        return False

    def use(self, schedule: Schedule) -> RamUse | None:
        if schedule.arena_bytes is None:
            return None
        records_bytes = self.records_bytes(schedule.arena_bytes)
        return RamUse(schedule.arena_bytes, records_bytes, ASKED.ram_bytes)


def solved(smallest_bytes: int, records_bytes: Callable[[int], int]) -> tuple[Schedule, list[int]]:
    """The schedule that is used where the step takes ``smallest_bytes``; the budgets searched."""
    budgets = []

    def find(budget: Budget, _seconds: float | None) -> Schedule:
        budgets.append(budget.ram_bytes)
        if budget.ram_bytes < smallest_bytes:
            return nothing(budget)
        return found(budget, budget.ram_bytes)

    *_, schedule = solve_in_shared_ram(find, ASKED, 10.0, Firmware(records_bytes))
    return schedule, budgets


def test_a_schedule_with_fewer_records_is_found_above_a_budget_without_any() -> None:
    """The first schedule has 12,000 bytes of records, those of at most 95,000 bytes have 5,000."""
    schedule, budgets = solved(90_000, lambda arena: 12_000 if arena > 95_000 else 5_000)
    assert budgets[:2] == [100_000, 88_000]
    assert schedule.arena_bytes is not None
    assert 90_000 <= schedule.arena_bytes <= 95_000
    assert schedule.asked_ram_bytes == ASKED.ram_bytes


@pytest.mark.parametrize("smallest_bytes", [99_000, 100_000])
def test_where_no_schedule_fits_the_largest_budget_without_one_is_stated(
    smallest_bytes: int,
) -> None:
    schedule, budgets = solved(smallest_bytes, lambda _: 12_000)
    assert (schedule.status, schedule.actions) == ("infeasible", ())
    tried = [each for each in budgets if each < smallest_bytes]
    assert schedule.budget.ram_bytes == max(tried) > 88_000


@pytest.mark.parametrize("records_bytes", [5_000, 12_000])
@pytest.mark.parametrize("actions", [True, False])
def test_no_search_follows_one_that_was_interrupted(records_bytes: int, actions: bool) -> None:
    """Neither for a smaller budget, nor with more time for the same one."""
    searches = []

    def find(budget: Budget, _seconds: float | None) -> Schedule:
        searches.append(budget)
        made = found(budget, 90_000) if actions else nothing(budget)
        stopped = {"ended_by": "interrupted"}
        return made.model_copy(update=stopped if actions else stopped | {"status": "no_solution"})

    *_, schedule = solve_in_shared_ram(find, ASKED, 10.0, Firmware(lambda _: records_bytes))
    assert searches == [ASKED]
    assert schedule.ended_by == "interrupted"
    assert (schedule.status == "feasible") == (actions and records_bytes == 5_000)

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
    fewest_bytes: int = 0

    @property
    def largest_arena_bytes(self) -> int:
        return ASKED.ram_bytes - self.fewest_bytes

    def has_room(self, _budget: Budget) -> bool:
        return False

    def use(self, schedule: Schedule) -> RamUse | None:
        if schedule.arena_bytes is None:
            return None
        records_bytes = self.records_bytes(schedule.arena_bytes)
        return RamUse(schedule.arena_bytes, records_bytes, ASKED.ram_bytes)


def solved(
    smallest_bytes: int,
    records_bytes: Callable[[int], int],
    *,
    fewest_bytes: int = 0,
    proven_bytes: int | None = None,
) -> tuple[Schedule, list[int]]:
    """The schedule that is used where the step takes ``smallest_bytes``; the budgets searched.

    It is proven that every schedule needs ``proven_bytes``, and ``fewest_bytes`` of records.
    """
    budgets = []

    def find(budget: Budget, _seconds: float | None) -> Schedule:
        budgets.append(budget.ram_bytes)
        if budget.ram_bytes < smallest_bytes:
            needs = {"smallest_ram_bound_bytes": proven_bytes}
            return nothing(budget).model_copy(update=needs)
        return found(budget, budget.ram_bytes)

    ram = Firmware(records_bytes, fewest_bytes)
    *_, schedule = solve_in_shared_ram(find, ASKED, 10.0, ram)
    return schedule, budgets


def test_a_schedule_with_fewer_records_is_found_above_a_budget_without_any() -> None:
    """The first schedule has 12,000 bytes of records, those of at most 95,000 bytes have 5,000."""
    schedule, budgets = solved(90_000, lambda arena: 12_000 if arena > 95_000 else 5_000)
    assert budgets[:2] == [100_000, 88_000]
    assert schedule.arena_bytes is not None
    assert 90_000 <= schedule.arena_bytes <= 95_000
    assert schedule.asked_ram_bytes == ASKED.ram_bytes


@pytest.mark.parametrize("smallest_bytes", [99_000, 100_000])
def test_nothing_fits_where_what_every_schedule_needs_leaves_no_room_for_the_fewest_records(
    smallest_bytes: int,
) -> None:
    """All schedules have 12,000 bytes of records; no schedule within 88,000 bytes was found."""
    schedule, _ = solved(smallest_bytes, lambda _: 12_000, fewest_bytes=12_000)
    assert (schedule.status, schedule.ended_by, schedule.actions) == ("infeasible", "proven", ())
    assert (schedule.budget.ram_bytes, schedule.asked_ram_bytes) == (88_000, ASKED.ram_bytes)


@pytest.mark.parametrize(("proven_bytes", "fits"), [(99_001, False), (99_000, True)])
def test_what_every_schedule_needs_is_proven_without_a_search_of_the_largest_budget(
    proven_bytes: int, fits: bool
) -> None:
    schedule, budgets = solved(
        99_500, lambda _: 9_000, fewest_bytes=1_000, proven_bytes=proven_bytes
    )
    assert not any(99_000 <= each < ASKED.ram_bytes for each in budgets)
    assert schedule.status == ("no_solution" if fits else "infeasible")
    if not fits:
        assert schedule.budget.ram_bytes == 99_000


def test_records_of_one_schedule_prove_nothing_about_schedules_with_fewer() -> None:
    """Schedules above 96,000 bytes were not searched but for one; others may have few records."""
    schedule, budgets = solved(96_000, lambda _: 9_000)
    assert budgets == [100_000, 91_000, 95_500, 97_750]
    assert (schedule.status, schedule.ended_by, schedule.actions) == ("no_solution", None, ())
    assert schedule.budget.ram_bytes == 95_500
    assert "--no-paging" in schedule.notes[-1]


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

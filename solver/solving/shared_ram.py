"""Schedules that fit into a board's RAM together with what its firmware records of them.

A firmware keeps checksums of what a schedule pages, and buffers, in the RAM that the arena is taken
from. How many depends on the schedule, so that it is known only when the schedule is. Whoever
searches a schedule for a board therefore does it with :func:`solve_in_shared_ram`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from devices.documents.readable import size
from devices.program import done_in_any_case
from solver.problem.schedule import Budget, Schedule
from solver.time_limit import TimeLimit

_FIRST = 0.15
_SHARES = (_FIRST, 0.7, 0.7, 1.0)
"""Shares of the time that is left, for one search after the other.

The first search finds out how large the records are."""

Find: TypeAlias = Callable[[Budget, float | None], Schedule]
"""A search within a budget and a time limit in seconds."""


@dataclass(frozen=True)
class RamUse:
    """RAM of a schedule on a board, in bytes.

    Attributes:
        arena_bytes: everything that the schedule holds.
        records_bytes: what the firmware keeps about it.
        available_bytes: the board's RAM for both.
    """

    arena_bytes: int
    records_bytes: int
    available_bytes: int

    @property
    def fits(self) -> bool:
        return self.arena_bytes <= self.largest_arena_bytes

    @property
    def largest_arena_bytes(self) -> int:
        """Largest arena beside these records."""
        return self.available_bytes - self.records_bytes

    def __str__(self) -> str:
        return (
            f"the arena of {size(self.arena_bytes)} and the {size(self.records_bytes)} that the"
            " firmware keeps about such a schedule (checksums, buffers) are larger than the board's"
            f" {size(self.available_bytes)}"
        )


class SharedRam(Protocol):
    """RAM of a board that arena and records share."""

    @property
    def largest_arena_bytes(self) -> int:
        """Largest arena beside the fewest records: no schedule with a larger one can run."""

    def has_room(self, budget: Budget) -> bool:
        """Whether a schedule of the budget fits with its records if each tensor is paged once."""

    def use(self, schedule: Schedule) -> RamUse | None:
        """RAM that a schedule takes; None for one that no board can run."""


def solve_in_shared_ram(
    find: Find,
    budget: Budget,
    time_limit_s: float | None,
    ram: SharedRam | None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[Schedule, ...]:
    """Find a schedule that fits into a board's RAM with its records.

    If the RAM is too small for both, the search is repeated with a budget that leaves room for the
    records. The schedule then states that budget, the one that was asked for, and a note. If there
    is no schedule within that budget, one half way up is tried: another schedule may have fewer
    records. A search that Ctrl-C interrupts is the last.

    Args:
        find: Finds a schedule.
        budget: The budget that was asked for.
        time_limit_s: Limit on wall time, divided among the searches.
        ram: The board's RAM; None where nothing but the arena counts.
        stopped: Whether the user wants what was found so far; Ctrl-C may come between searches.

    Returns:
        What the searches found; the last schedule is the one to use. If none was found that fits
        with its records, it says so: that none can, if what is proven leaves no room for the fewest
        records of any schedule, or that none is known. The others prove bounds only: they may not
        run.
    """
    if ram is None:
        return (find(budget, time_limit_s),)
    asked_bytes = budget.ram_bytes
    limit = TimeLimit.after(time_limit_s)
    searched: list[Schedule] = []
    fitting: list[Schedule] = []
    use: RamUse | None = None
    too_large = budget
    notes: tuple[str, ...] = ()

    def is_last(found: Schedule) -> bool:
        return found.ended_by == "interrupted" or stopped()

    for share in (1.0,) if ram.has_room(budget) else _SHARES:
        found = find(budget, limit.part(share).seconds)
        if budget.ram_bytes < asked_bytes:
            notes_of_all = (*found.notes, *notes)
            found = found.model_copy(update={"asked_ram_bytes": asked_bytes, "notes": notes_of_all})
        searched.append(found)
        if not found.actions and budget.ram_bytes < asked_bytes:
            if is_last(found):
                break
            half_way = (budget.ram_bytes + too_large.ram_bytes) // 2
            budget = budget.model_copy(update={"ram_bytes": half_way})
            notes = _notes(use, budget)
            continue
        before, use = use, done_in_any_case(partial(ram.use, found))
        if use is None or use.fits:
            fitting.append(found)
            if share == _FIRST and _may_improve(found) and not is_last(found):
                continue
            break
        if is_last(found):
            break
        too_large = budget
        budget = budget.model_copy(update={"ram_bytes": _smaller(budget, found, before, use)})
        if not budget.ram_bytes:
            break
        notes = _notes(use, budget)
    if fitting:
        return (*searched, _best(fitting))
    without = [each for each in searched if not each.actions]
    if without:
        return (*searched, _without_schedule(without, min(asked_bytes, ram.largest_arena_bytes)))
    return (*searched, _cannot_run(searched[-1], asked_bytes, use))


def _notes(use: RamUse | None, budget: Budget) -> tuple[str, ...]:
    return (f"{use}: solved for {size(budget.ram_bytes)} ({budget.ram_bytes} bytes) of RAM",)


def _may_improve(found: Schedule) -> bool:
    """Whether a search of the same budget with more time may find more."""
    is_open = found.ended_by is not None and found.status == "no_solution"
    return is_open or found.ended_by == "time_limit"


def _smaller(budget: Budget, found: Schedule, before: RamUse | None, use: RamUse) -> int:
    """The next RAM budget; 0 if there is none."""
    arena_bytes = found.arena_bytes or 0
    # What the budget does not count, and by how much a published method exceeds it.
    beside = use.arena_bytes - arena_bytes + max(0, arena_bytes - budget.ram_bytes)
    # Less RAM often means more page-outs, and more records.
    growth = 0 if before is None else max(0, use.records_bytes - before.records_bytes)
    return max(0, min(use.largest_arena_bytes - beside, budget.ram_bytes - 1) - growth)


def _best(fitting: list[Schedule]) -> Schedule:
    usable = [each for each in fitting if each.energy_j is not None]
    return min(usable, key=lambda each: each.energy_j or 0.0, default=fitting[-1])


def _without_schedule(without: list[Schedule], largest_bytes: int) -> Schedule:
    """The result of searches of which some found no schedule, and the others none that fits.

    A proof counts if it is one for arenas of ``largest_bytes``, which are the largest that can run.
    """
    widest = max(without, key=_too_little_bytes)
    if _too_little_bytes(widest) >= largest_bytes:
        largest = widest.budget.model_copy(update={"ram_bytes": largest_bytes})
        return widest.model_copy(update={"budget": largest})
    widest = max(without, key=lambda each: each.budget.ram_bytes)
    if widest.status == "no_solution":
        return widest
    note = (
        "whether a schedule with a larger arena and fewer records can run is not known; one that"
        " pages nothing has the fewest (--no-paging)"
    )
    return widest.model_copy(
        update={
            "status": "no_solution",
            "ended_by": None,
            "certificate": None,
            "notes": (*widest.notes, note),
        }
    )


def _too_little_bytes(found: Schedule) -> int:
    """The largest RAM that is proven to be too little for the schedules that were searched."""
    too_little = 0 if found.status == "no_solution" else found.budget.ram_bytes
    if found.status == "infeasible" and found.smallest_ram_bound_bytes is not None:
        too_little = max(too_little, found.smallest_ram_bound_bytes - 1)
    return too_little


def _cannot_run(found: Schedule, asked_bytes: int, use: RamUse | None) -> Schedule:
    """The result of searches whose schedules are all too large with their records."""
    assert use is not None, "a schedule was found that is too large"
    enough = use.largest_arena_bytes
    return Schedule(
        graph=found.graph,
        graph_sha256=found.graph_sha256,
        energy_source=found.energy_source,
        status="no_solution",
        ended_by=found.ended_by,
        solver=found.solver,
        budget=found.budget,
        asked_ram_bytes=asked_bytes if found.budget.ram_bytes < asked_bytes else None,
        bound_covers=found.bound_covers,
        restrictions=found.restrictions,
        chosen=found.chosen,
        notes=(
            *found.notes,
            f"{use}, so that no schedule that was found can run; allow more time"
            + (f", or a RAM budget of at most {enough} bytes" if enough > 0 else ""),
        ),
    )

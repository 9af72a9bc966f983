"""Schedules of one graph under several budgets, and what each implies for the others.

A schedule is valid under every budget that its RAM and time satisfy, whatever budget it was found
for. A proof under one budget (a lower bound, or infeasibility) holds under every tighter one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from solver.problem.claims import EVERY_SCHEDULE, ScheduleClass, class_of
from solver.problem.graph import CostedGraph
from solver.problem.problem import DEADLINE_ROUNDING
from solver.problem.schedule import (
    Action,
    Budget,
    Compute,
    Schedule,
    SolverRecord,
)
from solver.referee.referee import replay, verify

# Relative difference up to which energies count as equal: they are sums of thousands of doubles.
_SAME = 1e-9
_BORROWED = "the schedule found for "
# Fields that a schedule takes over together with the actions of another.
_OF_ACTIONS = (
    "actions",
    "energy_j",
    "time_s",
    "peak_bytes",
    "arena_bytes",
    "arena_bound_bytes",
    "bytes_written_to_storage",
    "resident_address",
)


class Frontier:
    """The best schedule known under each budget.

    All budgets count the same tensors and allow the same kinds of actions. ``gap`` is the distance
    from the bound that counts as optimal, relative to a schedule's energy.
    """

    def __init__(self, graph: CostedGraph, gap: float) -> None:
        self._graph = graph
        self._gap = gap
        self._order = tuple(op.name for op in graph.ops)
        self._least_energy_j = math.fsum(op.energy_j for op in graph.ops)
        self._known: dict[Budget, Schedule] = {}

    @property
    def schedules(self) -> Mapping[Budget, Schedule]:
        """The best schedule known under each budget."""
        return MappingProxyType(self._known)

    def add(self, schedule: Schedule) -> list[Schedule]:
        """Add a schedule, which may improve those under other budgets and be improved by them.

        Returns the schedule as improved, followed by those under other budgets that it improved.

        Raises ``RefereeError`` if a schedule is invalid under a budget that it should satisfy,
        which is a defect.
        """
        for other in self._known.values():
            schedule = self._improved(schedule, other)
        changed = [schedule]
        for budget, other in self._known.items():
            improved = self._improved(other, schedule)
            if improved is not other and budget != schedule.budget:
                self._known[budget] = improved
                changed.append(improved)
        self._known[schedule.budget] = schedule
        return changed

    def start(self, budget: Budget) -> tuple[Action, ...] | None:
        """Actions of least energy among the schedules known to fit ``budget``."""
        best = self._best_fit(budget)
        return None if best is None else best.actions

    def without_search(self, budget: Budget) -> Schedule | None:
        """The result for ``budget`` if it follows from other budgets: infeasible, or an optimum.

        Returns None if a search is needed, or if it takes no effort because the energy of computing
        every op once is proof enough.
        """
        for other in self._known.values():
            if _proves_infeasible(other, budget):
                same_deadline = other.budget.deadline_s == budget.deadline_s
                return Schedule(
                    status="infeasible",
                    smallest_ram_bytes=other.smallest_ram_bytes if same_deadline else None,
                    smallest_ram_bound_bytes=other.smallest_ram_bound_bytes,
                    limiting_op=other.limiting_op if same_deadline else None,
                    **_inferred(budget, other),
                )
        best = self._best_fit(budget)
        roomier = [s for s in self._roomier(budget) if s.energy_bound_j is not None]
        if best is None or not roomier or self._is_near_least(best):
            return None
        proof = max(roomier, key=lambda s: s.energy_bound_j or 0.0)
        empty = Schedule(
            status="no_solution",
            energy_bound_j=proof.energy_bound_j,
            any_order_bound_j=proof.any_order_bound_j,
            **_inferred(budget, proof),
        )
        schedule = self._improved(empty, best)
        return schedule if schedule.status == "optimal" else None

    def _is_near_least(self, schedule: Schedule) -> bool:
        return (schedule.energy_j or 0.0) * (1 - self._gap) <= self._least_energy_j

    def _best_fit(self, budget: Budget) -> Schedule | None:
        fitting = [s for s in self._known.values() if _fits(s, budget)]
        return min(fitting, key=lambda s: s.energy_j or 0.0, default=None)

    def _roomier(self, budget: Budget) -> Iterator[Schedule]:
        return (s for s in self._known.values() if _is_roomier(s.budget, budget))

    def _improved(self, schedule: Schedule, other: Schedule) -> Schedule:
        """``schedule`` with the better of the actions, bounds and advice of both schedules."""
        changes: dict[str, object] = {}
        energy_j, bound_j = schedule.energy_j, schedule.energy_bound_j
        if _fits(other, schedule.budget) and _less(other.energy_j, energy_j):
            verify(self._graph, other.actions, schedule.budget)
            energy_j = other.energy_j
            changes = {name: getattr(other, name) for name in _OF_ACTIONS}
            own_notes = [note for note in schedule.notes if not note.startswith(_BORROWED)]
            changes["notes"] = (*own_notes, _BORROWED + _words(other.budget))
            changes |= _without_advice()
            if not self._class(schedule).keeps_order(other.actions):
                # The bound holds for the order of the schedule that is replaced.
                bound_j = schedule.any_order_bound_j
                changes |= {"bound_covers": EVERY_SCHEDULE.words, "restrictions": ()}
        if _is_roomier(other.budget, schedule.budget):
            if _less(schedule.any_order_bound_j, other.any_order_bound_j, missing=-math.inf):
                changes["any_order_bound_j"] = other.any_order_bound_j
            covered = EVERY_SCHEDULE if "restrictions" in changes else self._class(schedule)
            if _less(bound_j, other.energy_bound_j, missing=-math.inf) and self._class(
                other
            ).includes(covered):
                bound_j = other.energy_bound_j
                changes["energy_bound_j"] = bound_j
        if energy_j is None:
            changes |= self._better_advice(schedule, other)
            is_open = schedule.status in ("no_solution", "exhausted")
            if is_open and _proves_infeasible(other, schedule.budget):
                changes |= {
                    "status": "infeasible",
                    "bound_covers": EVERY_SCHEDULE.words,
                    "restrictions": (),
                }
        elif changes:
            # A schedule outside the restrictions may cost less than a bound that assumes them.
            bound_j = min(bound_j or 0.0, energy_j)
            gap = (energy_j - bound_j) / energy_j if energy_j else 0.0
            changes |= {
                "energy_bound_j": bound_j,
                "asked_gap": self._gap,
                "gap": gap,
                "status": "optimal" if gap <= self._gap + _SAME else "feasible",
            }
        unchanged = all(getattr(schedule, name) == value for name, value in changes.items())
        if unchanged:
            return schedule
        # A certificate is about what the search under this budget proved.
        return schedule.model_copy(update={**changes, "certificate": None})

    def _class(self, schedule: Schedule) -> ScheduleClass:
        return class_of(schedule, self._order)

    def _better_advice(self, schedule: Schedule, other: Schedule) -> dict[str, object]:
        """A smaller feasible RAM budget than the one that ``schedule`` states, from ``other``."""
        named = schedule.smallest_ram_bytes
        if named is None or not _fits(
            other, schedule.budget.model_copy(update={"ram_bytes": named - 1})
        ):
            return {}
        played = replay(self._graph, other.actions, other.budget.covers)
        peak = other.actions[played.peak_action]
        return {
            "smallest_ram_bytes": _takes_bytes(other),
            "limiting_op": peak.op if isinstance(peak, Compute) else schedule.limiting_op,
        }


def _fits(schedule: Schedule, budget: Budget) -> bool:
    if not schedule.actions or schedule.time_s is None:
        return False
    fits = _takes_bytes(schedule) <= budget.ram_bytes
    return fits and schedule.time_s <= _deadline_s(budget) * (1 + DEADLINE_ROUNDING)


def _takes_bytes(schedule: Schedule) -> int:
    return max(schedule.peak_bytes or 0, schedule.arena_bytes or 0)


def _is_roomier(roomy: Budget, tight: Budget) -> bool:
    return roomy.ram_bytes >= tight.ram_bytes and _deadline_s(roomy) >= _deadline_s(tight)


def _deadline_s(budget: Budget) -> float:
    return math.inf if budget.deadline_s is None else budget.deadline_s


def _less(a: float | None, b: float | None, missing: float = math.inf) -> bool:
    low, high = missing if a is None else a, missing if b is None else b
    return low < high and (math.isinf(low) or math.isinf(high) or low < high - _SAME * abs(high))


def _without_advice() -> dict[str, object]:
    """What a schedule no longer states once it has actions."""
    return {
        "smallest_ram_bytes": None,
        "smallest_ram_bound_bytes": None,
        "smallest_deadline_s": None,
        "smallest_deadline_bound_s": None,
        "limiting_op": None,
    }


def _proves_infeasible(other: Schedule, budget: Budget) -> bool:
    """Whether the infeasibility of ``other`` implies that of ``budget``.

    Only what is proven for every schedule counts: the status ``infeasible``, and the bound on the
    smallest RAM budget, not the budget for which a schedule was found.
    """
    if other.status != "infeasible" or _deadline_s(budget) > _deadline_s(other.budget):
        return False
    proven_bytes = other.budget.ram_bytes
    if other.smallest_ram_bound_bytes is not None:
        proven_bytes = max(proven_bytes, other.smallest_ram_bound_bytes - 1)
    return budget.ram_bytes <= proven_bytes


def _inferred(budget: Budget, source: Schedule) -> dict[str, object]:
    """Fields of a schedule that follows from another without search."""
    return {
        "graph": source.graph,
        "graph_sha256": source.graph_sha256,
        "energy_source": source.energy_source,
        "budget": budget,
        "bound_covers": source.bound_covers,
        "restrictions": source.restrictions,
        "notes": source.notes if source.status == "infeasible" else (),
        "solver": SolverRecord(
            engine="none",
            formulation=source.solver.formulation,
            version=f"no search was needed: it follows from {_words(source.budget)}",
            seconds=0.0,
            build_seconds=0.0,
            rounds=0,
            threads=0,
        ),
    }


def _words(budget: Budget) -> str:
    deadline_s = budget.deadline_s
    deadline = "no deadline" if deadline_s is None else f"a deadline of {deadline_s:.9g} s"
    return f"{budget.ram_bytes} bytes of RAM and {deadline}"

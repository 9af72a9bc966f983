"""The answer in words: lines of text and tables, and the progress of the search in one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from devices.documents.readable import (
    NO_SOURCE,
    above_least,
    lower_bound,
    si,
    size,
    smallest_ram_words,
    time_words,
)
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import PageIn, PageOut, Schedule
from solver.referee.referee import Replay, replay
from solver.search.search import Progress

Table: TypeAlias = list[list[str]]
"""Rows, the first of which is the head."""

# Note on a search that was ended from outside; for the others the bound says enough.
_STOPPED = {"time_limit": "; stopped by the time limit", "interrupted": "; interrupted"}


def progress_line(progress: Progress) -> str:
    """Format the best schedule and the bound while the search runs."""
    best = "none yet" if progress.value is None else si(progress.value, "J", 6)
    bound = "none yet" if progress.bound is None else lower_bound(progress.bound, "J", 6)
    text = f"{progress.seconds:5.1f} s  {progress.phase}  best {best}  bound {bound}"
    if progress.value and progress.bound is not None:
        text += f"  gap {100 * (progress.value - progress.bound) / progress.value:.3f} %"
    return text


def summary(schedule: Schedule, kept: Replay, graph: CostedGraph) -> Iterator[str | Table]:
    """State the result; ``kept`` is the step with nothing recomputed or paged."""
    budget = schedule.budget
    covers = "everything" if budget.covers == "all" else "activations and their gradients"
    yield (
        f"{schedule.graph}: {schedule.status} under {size(budget.ram_bytes)}"
        f" ({budget.ram_bytes} bytes) of RAM for {covers}"
        + ("" if budget.deadline_s is None else f", within {si(budget.deadline_s, 's')}")
        + (", transfers not counted" if budget.deadline_s and budget.instantaneous_paging else "")
        + _asked(schedule)
    )
    if schedule.status in ("infeasible", "exhausted"):
        yield from _explain_infeasible(schedule, graph)
    if schedule.actions:
        yield from _compare(schedule, kept, graph)
    solver = schedule.solver
    formulation = "" if solver.formulation == "none" else f"{solver.formulation}, "
    yield (
        f"{formulation}{solver.version}: {solver.seconds:.1f} s, of which"
        f" {solver.build_seconds:.2f} s to build the program; {solver.rounds} rounds"
        + _STOPPED.get(schedule.ended_by or "", "")
    )
    yield from _certificate(schedule)
    for choice in schedule.chosen:
        yield (f"chosen: {choice}")
    for note in schedule.notes:
        yield (f"note: {note}")


def _asked(schedule: Schedule) -> str:
    """The RAM budget that was asked for, where records of the firmware leave less of it."""
    asked = schedule.asked_ram_bytes
    if asked is None:
        return ""
    return f"; asked for: {size(asked)} ({asked} bytes), of which the firmware's records leave that"


def _compare(schedule: Schedule, kept: Replay, graph: CostedGraph) -> Iterator[str | Table]:
    """State the schedule beside the step with nothing recomputed or paged."""
    chosen = replay(graph, schedule.actions, schedule.budget.covers)

    def column(played: Replay) -> list[str]:
        moments = played.moments
        return [
            size(played.peak_bytes),
            si(played.energy_j, "J"),
            si(played.time_s, "s"),
            str(sum(moment.recomputation for moment in moments)),
            str(sum(isinstance(moment.action, PageOut) for moment in moments)),
            str(sum(isinstance(moment.action, PageIn) for moment in moments)),
            size(played.bytes_written_to_storage),
            si(played.hidden_s, "s"),
        ]

    source = schedule.energy_source or NO_SOURCE
    names = [
        "peak of RAM",
        f"energy a step ({source})",
        time_words(source, "time a step"),
        "ops recomputed",
        "tensors paged out",
        "tensors paged in",
        "written to storage",
        "hidden transfer time",
    ]
    rows = [["", "unconstrained", "this schedule"]]
    rows += [list(row) for row in zip(names, column(kept), column(chosen), strict=True)]
    if not any(isinstance(s, PageIn | PageOut) and s.asynchronous for s in schedule.actions):
        rows.pop()  # nothing runs beside ops
    yield rows
    yield from _arena(schedule)
    bound = schedule.energy_bound_j or 0.0
    yield (
        f"proven: no schedule needs less than {lower_bound(bound, 'J')}, so this one is"
        f" {above_least(schedule.gap or 0.0)}"
        + (
            f", among schedules in which {'; '.join(schedule.restrictions)}"
            if schedule.restrictions
            else ", in any order"
        )
    )
    if schedule.restrictions and schedule.any_order_bound_j is not None:
        yield (f"proven for any order: at least {lower_bound(schedule.any_order_bound_j, 'J')}")


def _certificate(schedule: Schedule) -> Iterator[str]:
    """State what a second proof confirmed; a note says what it did not."""
    certificate = schedule.certificate
    if certificate is None:
        return
    if certificate.outcome == "confirmed":
        yield (
            f"certified: {certificate.engine} proved this again, without presolve, in"
            f" {certificate.seconds:.1f} s"
        )
    if certificate.outcome == "no_engine":
        yield (
            "certified: no engine was needed to prove this, only sums of costs or a search of all"
            " schedules"
        )


def _arena(schedule: Schedule) -> Iterator[str]:
    arena, least = schedule.arena_bytes, schedule.arena_bound_bytes
    if arena is not None and least is not None:
        yield (
            f"addresses: an arena of {size(arena)} ({arena} bytes); this schedule needs at least"
            f" {least} bytes, so fragmentation is"
            f" {100 * (1 - least / arena) if arena else 0.0:.3f} %"
        )


def _explain_infeasible(schedule: Schedule, graph: CostedGraph) -> Iterator[str]:
    fits, asked = "fits", schedule.asked_ram_bytes
    if asked is not None:
        fits = (
            f"fits into the {schedule.budget.ram_bytes} bytes that the firmware's records leave of"
            f" the {asked} bytes asked for"
        )
    layers, others = _layers(graph)
    if schedule.status == "infeasible":
        yield (f"no schedule{layers} {fits}, in whatever order its ops are computed")
    else:
        words = "; ".join(schedule.restrictions)
        yield (f"no schedule{layers} {fits} in which {words}; others may exist")
    enough, bound = schedule.smallest_ram_bytes, schedule.smallest_ram_bound_bytes
    problem = Problem(graph, schedule.budget)
    if problem.is_evidently_late:
        yield (f"{_longest_needed(problem)}, whatever the RAM budget")
    elif enough is None:
        yield ("no larger RAM budget is known to be enough")
    else:
        yield (
            f"the smallest feasible RAM budget{layers} is {smallest_ram_words(enough, bound)},"
            f" set by {schedule.limiting_op}{others}"
        )
    enough_s, bound_s = schedule.smallest_deadline_s, schedule.smallest_deadline_bound_s
    if enough_s is not None:
        proven = "" if enough_s == bound_s else " at most"
        yield (
            f"the shortest feasible deadline with this RAM budget is{proven} {enough_s:.9g} s"
            + ("" if not proven or bound_s is None else f"; at least {bound_s:.9g} s are needed")
        )


def _longest_needed(problem: Problem) -> str:
    """What alone takes longer than the deadline, in words."""
    ops_s, transfers_s = problem.least_time_s, problem.unavoidable_pages.time_s
    if problem.latest_s is not None and problem.latest_s < ops_s:
        return f"computing every op once takes {si(ops_s, 's')}"
    transfers = f"the transfers that every schedule makes take {si(transfers_s, 's')}"
    if not problem.overlaps:
        return f"computing every op once takes {si(ops_s, 's')} and {transfers} more"
    if problem.latest_s is not None and problem.latest_s < transfers_s:
        return transfers
    working = f"the processor for {si(problem.unavoidable_working_s, 's')}"
    return f"computing every op once takes {si(ops_s, 's')}, and {transfers}, {working}"


def _layers(graph: CostedGraph) -> tuple[str, str]:
    """In which way the step was solved, and which other layers may need less RAM."""
    origin = graph.origin
    if origin is None:
        return "", ""
    besides = ["codecs"] if origin.codecs else []
    besides += [f"the batch in {origin.accumulate} parts"] if origin.accumulate else []
    rest = f" with {' and '.join(besides)}" if besides else ""
    if origin.slices is None:
        return f" of whole layers{rest}", "; layers in slices may need less (--slices)"
    return f" in these slices{rest}", "; smaller slices may need less (--slices)"

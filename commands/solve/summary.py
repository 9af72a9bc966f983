"""Printouts of ``solve``: progress and the schedule."""

from __future__ import annotations

from commands.console import Console
from commands.wording import smallest_ram_words, time_words
from devices.documents.readable import si, size
from solver.problem.graph import CostedGraph
from solver.problem.schedule import PageIn, PageOut, Schedule
from solver.referee.referee import Replay, replay
from solver.search.search import Progress

# Note on a search that was ended from outside; for the others the bound says enough.
_STOPPED = {"time_limit": "; stopped by the time limit", "interrupted": "; interrupted"}


def progress_line(progress: Progress) -> str:
    """Format the best schedule and the bound while the search runs."""
    best = "none yet" if progress.value is None else si(progress.value, "J", 6)
    bound = "none yet" if progress.bound is None else si(progress.bound, "J", 6)
    text = f"{progress.seconds:5.1f} s  {progress.phase}  best {best}  bound {bound}"
    if progress.value and progress.bound is not None:
        text += f"  gap {100 * (progress.value - progress.bound) / progress.value:.3f} %"
    return text


def summarise(console: Console, schedule: Schedule, kept: Replay, graph: CostedGraph) -> None:
    """Print the result; ``kept`` is the step with nothing recomputed or paged."""
    budget = schedule.budget
    covers = "everything" if budget.covers == "all" else "activations and their gradients"
    console.result(
        f"{schedule.graph}: {schedule.status} under {size(budget.ram_bytes)}"
        f" ({budget.ram_bytes} bytes) of RAM for {covers}"
        + ("" if budget.deadline_s is None else f", within {si(budget.deadline_s, 's')}")
        + (", transfers not counted" if budget.deadline_s and budget.instantaneous_paging else "")
    )
    if schedule.status in ("infeasible", "exhausted"):
        _explain_infeasible(console, schedule)
    if schedule.actions:
        _compare(console, schedule, kept, graph)
    solver = schedule.solver
    console.result(
        f"{solver.formulation}, {solver.version}: {solver.seconds:.1f} s, of which"
        f" {solver.build_seconds:.2f} s to build the program; {solver.rounds} rounds"
        + _STOPPED.get(schedule.ended_by or "", "")
    )
    _show_certificate(console, schedule)
    for choice in schedule.chosen:
        console.result(f"chosen: {choice}")
    for note in schedule.notes:
        console.result(f"note: {note}")


def _compare(console: Console, schedule: Schedule, kept: Replay, graph: CostedGraph) -> None:
    """Print the schedule beside the step with nothing recomputed or paged."""
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

    source = schedule.energy_source or "source not stated"
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
    console.table(rows, right=(1, 2))
    _show_arena(console, schedule)
    bound = schedule.energy_bound_j or 0.0
    console.result(
        f"proven: no schedule needs less than {si(bound, 'J')}, so this one is within"
        f" {100 * (schedule.gap or 0.0):.3f} % of the least"
        + (
            f", among schedules in which {'; '.join(schedule.restrictions)}"
            if schedule.restrictions
            else ", in any order"
        )
    )
    if schedule.restrictions and schedule.any_order_bound_j is not None:
        console.result(f"proven for any order: at least {si(schedule.any_order_bound_j, 'J')}")


def _show_certificate(console: Console, schedule: Schedule) -> None:
    """Print what a second proof confirmed; a note says what it did not."""
    certificate = schedule.certificate
    if certificate is None:
        return
    if certificate.outcome == "confirmed":
        console.result(
            f"certified: {certificate.engine} proved this again, without presolve, in"
            f" {certificate.seconds:.1f} s"
        )
    if certificate.outcome == "no_engine":
        console.result(
            "certified: no engine was needed to prove this, only sums of costs or a search of all"
            " schedules"
        )


def _show_arena(console: Console, schedule: Schedule) -> None:
    arena, least = schedule.arena_bytes, schedule.arena_bound_bytes
    if arena is not None and least is not None:
        console.result(
            f"addresses: an arena of {size(arena)} ({arena} bytes); this schedule needs at least"
            f" {least} bytes, so fragmentation is"
            f" {100 * (1 - least / arena) if arena else 0.0:.3f} %"
        )


def _explain_infeasible(console: Console, schedule: Schedule) -> None:
    if schedule.status == "infeasible":
        console.result("no schedule fits, in whatever order its ops are computed")
    else:
        console.result(
            f"no schedule fits in which {'; '.join(schedule.restrictions)}; others may exist"
        )
    enough, bound = schedule.smallest_ram_bytes, schedule.smallest_ram_bound_bytes
    if enough is None:
        console.result("no larger RAM budget is known to be enough")
    else:
        console.result(
            f"the smallest feasible RAM budget is {smallest_ram_words(enough, bound)},"
            f" set by {schedule.limiting_op}"
        )
    enough_s, bound_s = schedule.smallest_deadline_s, schedule.smallest_deadline_bound_s
    if enough_s is not None:
        proven = "" if enough_s == bound_s else " at most"
        console.result(
            f"the shortest feasible deadline with this RAM budget is{proven} {enough_s:.9g} s"
            + ("" if not proven or bound_s is None else f"; at least {bound_s:.9g} s are needed")
        )

"""Check of the figures that a schedule states.

The referee replays the actions; everything that follows from them, from the graph or from other
figures is recomputed and compared. A bound was proven by a search and cannot be recomputed: it must
not exceed what it bounds, and the gap must follow from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from devices.documents.explain import shown
from devices.documents.readable import si
from devices.documents.unlike import ROUNDING
from solver.addresses.packing import load_of
from solver.addresses.residencies import blocks_of, spans_of
from solver.files.assessment import wrong_assessment
from solver.problem.claims import covered_words
from solver.problem.footprint import least_ram_bytes, uncounted_tensors
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, Schedule
from solver.referee.addresses import verify_addresses
from solver.referee.referee import RefereeError, Replay, verify

_SHOWN_HASH = 12
_MOST_DIGITS = 17


def wrong_figures(graph: CostedGraph, schedule: Schedule) -> Iterator[str]:
    """Sentences about figures of a schedule that are not those of its actions.

    Args:
        graph: The schedule's costed graph.
        schedule: The schedule.

    Yields:
        A sentence for each wrong figure, without the name of the file. The first sentence is about
        the root of the trouble; those after it may follow from it.
    """
    yield from _of_another_graph(graph, schedule)
    yield from _certificate(schedule)
    solver = schedule.solver
    if solver.build_seconds > solver.seconds * (1 + ROUNDING):
        yield (
            f"states solver.build_seconds {solver.build_seconds:g}; the whole search took"
            f" {solver.seconds:g} s"
        )
    if not schedule.actions:
        yield from _without_actions(graph, schedule)
        yield from _limits(schedule)
        return
    if schedule.status not in {"optimal", "feasible"}:
        yield f"states status {schedule.status}; it has actions"
    try:
        played = verify(graph, schedule.actions, schedule.budget)
        if schedule.arena_bytes is not None:
            verify_addresses(
                graph,
                schedule.actions,
                schedule.resident_address or {},
                schedule.arena_bytes,
                schedule.budget.covers,
            )
    except RefereeError as error:
        yield f"not a valid schedule of {graph.name}: {error}"
        return
    yield from _costs(schedule, played)
    yield from _arena(graph, schedule)
    yield from _bounds(schedule)
    yield from _limits(schedule)
    yield from wrong_assessment(graph, schedule)


def differs(what: str, stated: float, found: float, unit: str, reason: str) -> Iterator[str]:
    """A sentence if a stated quantity is not the one found, apart from rounding."""
    if math.isclose(stated, found, rel_tol=ROUNDING):
        return
    texts = next(
        pair
        for digits in range(4, _MOST_DIGITS + 1)
        if (pair := (si(stated, unit, digits), si(found, unit, digits)))[0] != pair[1]
    )
    yield f"states {what} {texts[0]}; {reason} {texts[1]}"


def _of_another_graph(graph: CostedGraph, schedule: Schedule) -> Iterator[str]:
    if schedule.graph != graph.name:
        yield f"states graph {schedule.graph!r}; the costed graph is {graph.name!r}"
    if schedule.energy_source != graph.energy_source:
        yield (
            f"states energy_source {schedule.energy_source or 'nothing'}; that of the costs in its"
            f" graph is {graph.energy_source or 'not stated'}"
        )
    if schedule.graph_sha256 not in {None, graph.sha256}:
        stated = str(schedule.graph_sha256)[:_SHOWN_HASH]
        yield (
            f"states graph_sha256 {stated}; that of the costed graph {graph.name!r} is"
            f" {graph.sha256[:_SHOWN_HASH]}: one of the two files was changed or replaced"
        )


def _certificate(schedule: Schedule) -> Iterator[str]:
    """Sentences about a second proof that does not belong to what the schedule claims."""
    certificate, status = schedule.certificate, schedule.status
    if certificate is None:
        return
    outcome = f"certificate.outcome {certificate.outcome}"
    if certificate.outcome == "no_engine" and certificate.engine is not None:
        yield f"states {outcome}; it names the engine {certificate.engine}"
    if certificate.outcome != "no_engine" and certificate.engine is None:
        yield f"states {outcome}; it names no engine"
    claims = status != "no_solution"
    if certificate.outcome == "refuted" and status in {"infeasible", "exhausted"}:
        yield f"states status {status}; its certificate says that this was refuted"
    elif certificate.outcome != "refuted" and not claims:
        yield f"states {outcome}; with status no_solution it claims nothing"
    if claims and schedule.actions and schedule.energy_bound_j is None:
        yield f"states {outcome}; it states no energy_bound_j"


def _limits(schedule: Schedule) -> Iterator[str]:
    """Sentences about limits that contradict each other, whatever the search has found."""
    for name, found in (
        ("smallest_ram_bound_bytes", schedule.smallest_ram_bytes),
        ("smallest_deadline_bound_s", schedule.smallest_deadline_s),
    ):
        bound = getattr(schedule, name)
        if bound is not None and found is not None and bound > found * (1 + ROUNDING):
            yield f"states {name} {bound:g}; it is no lower bound of {found:g}"
    asked_bytes, ram_bytes = schedule.asked_ram_bytes, schedule.budget.ram_bytes
    if asked_bytes is not None and asked_bytes < ram_bytes:
        yield f"states asked_ram_bytes {asked_bytes}; its budget is {ram_bytes} bytes of RAM"


def _without_actions(graph: CostedGraph, schedule: Schedule) -> Iterator[str]:
    if schedule.status in {"optimal", "feasible"}:
        yield f"states status {schedule.status}; it has no actions"
    for name in (
        "energy_j",
        "gap",
        "time_s",
        "peak_bytes",
        "arena_bytes",
        "arena_bound_bytes",
        "bytes_written_to_storage",
        "resident_address",
        "robustness",
    ):
        if getattr(schedule, name) is not None:
            yield f"states {name}; it has no actions"
    budget = schedule.budget
    least_bytes, phrase = least_ram_bytes(graph, budget.covers)
    if schedule.smallest_ram_bytes is not None and schedule.smallest_ram_bytes < least_bytes:
        yield (
            f"states smallest_ram_bytes {schedule.smallest_ram_bytes}; {phrase} takes {least_bytes}"
        )
    least_s = Problem(graph, budget).unavoidable_time_s
    if (schedule.smallest_deadline_s or math.inf) < least_s * (1 - ROUNDING):
        yield (
            f"states smallest_deadline_s {schedule.smallest_deadline_s:g}; what every schedule does"
            f" takes {least_s:g} s"
        )


def _costs(schedule: Schedule, played: Replay) -> Iterator[str]:
    for name, stated, found, unit, verb in (
        ("energy_j", schedule.energy_j, played.energy_j, "J", "cost"),
        ("time_s", schedule.time_s, played.time_s, "s", "take"),
    ):
        if stated is None:
            yield f"states no {name}; a schedule with actions states it"
        else:
            yield from differs(name, stated, found, unit, f"its actions {verb}")
    written_bytes = schedule.bytes_written_to_storage
    if schedule.peak_bytes != played.peak_bytes:
        yield f"states peak_bytes {schedule.peak_bytes}; its actions take {played.peak_bytes}"
    if written_bytes not in {None, played.bytes_written_to_storage}:
        yield (
            f"states bytes_written_to_storage {written_bytes}; its actions write"
            f" {played.bytes_written_to_storage}"
        )


def _arena(graph: CostedGraph, schedule: Schedule) -> Iterator[str]:
    arena_bytes, bound_bytes = schedule.arena_bytes, schedule.arena_bound_bytes
    if arena_bytes is None:
        if _has_addresses(schedule):
            yield "states addresses; it states no arena_bytes"
        if bound_bytes is not None:
            yield f"states arena_bound_bytes {bound_bytes}; it states no arena_bytes"
        return
    end_bytes = _end_bytes(graph, schedule)
    if arena_bytes != end_bytes:
        yield f"states arena_bytes {arena_bytes}; its addresses end at {end_bytes}"
    if arena_bytes > schedule.budget.ram_bytes:
        yield (
            f"states arena_bytes {arena_bytes}; its budget is {schedule.budget.ram_bytes} bytes of"
            " RAM"
        )
    if bound_bytes is not None:
        blocks = blocks_of(graph, schedule.actions, schedule.budget.covers)
        least_bytes = max(load_of(spans_of(blocks)))
        if bound_bytes < least_bytes:
            yield f"states arena_bound_bytes {bound_bytes}; its actions need {least_bytes}"
        if bound_bytes > arena_bytes:
            yield (
                f"states arena_bound_bytes {bound_bytes}, which exceeds its arena of"
                f" {arena_bytes} bytes: it is no lower bound"
            )


def _has_addresses(schedule: Schedule) -> bool:
    return bool(schedule.resident_address) or any(map(_is_placed, schedule.actions))


def _is_placed(action: Action) -> bool:
    match action:
        case Compute():
            return bool(action.address) or action.workspace_address is not None
        case PageIn():
            return action.address is not None
        case _:
            return False


def _end_bytes(graph: CostedGraph, schedule: Schedule) -> int:
    """End of the highest address; the addresses are valid."""
    uncounted = uncounted_tensors(graph, schedule.budget.covers)
    size = {t.name: 0 if t.name in uncounted else t.bytes for t in graph.tensors}
    workspace = {op.name: op.workspace_bytes for op in graph.ops}
    ends = [address + size[name] for name, address in (schedule.resident_address or {}).items()]
    for action in schedule.actions:
        match action:
            case Compute():
                ends += [address + size[name] for name, address in (action.address or {}).items()]
                if action.workspace_address is not None:
                    ends.append(action.workspace_address + workspace[action.op])
            case PageIn():
                if action.address is not None:
                    ends.append(action.address + size[action.tensor])
    return max(ends, default=0)


def _bounds(schedule: Schedule) -> Iterator[str]:
    """Sentences about bounds, gap and status; the energy is that of the actions."""
    energy_j, bound_j = schedule.energy_j, schedule.energy_bound_j
    if energy_j is None:
        return
    most_j = energy_j * (1 + ROUNDING)
    for name in ("energy_bound_j", "any_order_bound_j"):
        stated = getattr(schedule, name)
        if stated is not None and stated > most_j:
            yield (
                f"states {name} {si(stated, 'J')}, which exceeds its energy of"
                f" {si(energy_j, 'J')}: it is no lower bound"
            )
    if (schedule.gap is None) != (bound_j is None):
        pair = ("gap", "energy_bound_j") if bound_j is None else ("energy_bound_j", "gap")
        yield f"states {pair[0]}; it states no {pair[1]}, which belongs to it"
    if bound_j is None and schedule.ended_by in {"proven", "gap"}:
        yield f"states ended_by {schedule.ended_by}; it states no bound"
    covers = covered_words(schedule.restrictions)
    if bound_j is not None and schedule.bound_covers != covers:
        yield (
            f"states bound_covers {shown(schedule.bound_covers)}; with"
            f" {len(schedule.restrictions)} restrictions its bound holds for {covers}"
        )
    if schedule.gap is None or bound_j is None:
        if schedule.status == "optimal":
            yield "states status optimal; it states no bound and no gap"
        return
    gap = max(0.0, energy_j - bound_j) / energy_j if energy_j else 0.0
    if abs(schedule.gap - gap) > ROUNDING:
        yield (
            f"states gap {schedule.gap:.6g}; the distance of its energy from its bound is {gap:.6g}"
        )
    asked = schedule.asked_gap
    if schedule.status == "optimal" and asked is not None and gap > asked + ROUNDING:
        yield f"states status optimal; its gap of {gap:.6g} exceeds the asked gap of {asked:g}"
    if schedule.status == "feasible" and gap <= (asked or 0.0) - (ROUNDING if asked else 0.0):
        yield f"states status feasible; with its gap of {gap:.6g} it is optimal"

"""Traces of schedules for https://ui.perfetto.dev: ops, transfers and bytes in RAM.

A trace has the prediction and, after a replay, the measurements. The format is Chrome's trace
events (Google, *Trace Event Format*, 2016): complete events ``X``, counters ``C`` and metadata
``M``, with times in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from devices.documents.readable import NO_SOURCE
from devices.profile import Interval
from devices.replay import ExpectedAction, ReplayedAction, ReplayReport, Span
from replay.expectation import Level, expected_step, memory_levels
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule
from solver.referee.referee import replay

Event: TypeAlias = dict[str, Any]

_PREDICTED, _MEASURED = 1, 2
_PROCESSOR, _STORAGE = 1, 2
_NS_PER_S = 1e9
_NS_PER_US = 1e3


def perfetto_trace(
    graph: CostedGraph, schedule: Schedule, report: ReplayReport | None
) -> dict[str, Any]:
    """Build a trace with a process ``predicted`` and, with a report, a process ``measured``.

    Each process has tracks of the processor, the storage and the bytes in RAM.

    Args:
        graph: Graph of the schedule.
        schedule: Schedule with actions.
        report: Report of a replay, whose median step is shown as measured; or None.

    Returns:
        The trace, for ``json.dump``.

    Raises:
        RefereeError: The schedule is not valid for this graph.
        ValueError: The schedule has no actions.
    """
    expected = expected_step(graph, schedule)
    played = replay(graph, schedule.actions, schedule.budget.covers)
    predicted = {
        action.schedule_index: Span(action.start_s, action.time_s.median)
        for action in expected.actions
    }
    source = graph.energy_source or NO_SOURCE
    costs = {action.schedule_index: _costs(action) for action in expected.actions}
    name = f"predicted ({source})"
    events = list(_process(_PREDICTED, name, expected.actions, predicted, costs))
    events += _memory(_PREDICTED, memory_levels(played))
    if report is not None:
        measured = {
            action.schedule_index: Span(action.start_s, action.run_s) for action in report.actions
        }
        times = {action.schedule_index: _times(action) for action in report.actions}
        name = f"measured on {report.device}"
        if report.measured_energy_source == "emulated":
            name = f"{report.device} (emulated)"
        events += _process(_MEASURED, name, expected.actions, measured, times)
        events += _memory(_MEASURED, memory_levels(played, measured))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"graph": graph.name, "energy_source": source},
    }


def _process(
    process: int,
    name: str,
    actions: Sequence[ExpectedAction],
    spans: Mapping[int, Span],
    details: Mapping[int, Mapping[str, Any]],
) -> Iterator[Event]:
    yield _metadata(process, "process_name", {"name": name})
    yield _metadata(process, "process_sort_index", {"sort_index": process})
    for track, track_name in ((_PROCESSOR, "processor"), (_STORAGE, "storage")):
        yield _metadata(process, "thread_name", {"name": track_name}, track)
        end_ns = 0
        on_track = [action for action in actions if _track(action) == track]
        for action in sorted(on_track, key=lambda action: spans[action.schedule_index].start_s):
            span = spans[action.schedule_index]
            # Slices of a track must not overlap, but a board's floats are coarser than nanoseconds.
            start_ns = max(end_ns, round(span.start_s * _NS_PER_S))
            end_ns = max(start_ns, round((span.start_s + span.time_s) * _NS_PER_S))
            yield {
                "name": _name(action),
                "cat": action.phase if action.what == "compute" else action.what,
                "ph": "X",
                "ts": start_ns / _NS_PER_US,
                "dur": (end_ns - start_ns) / _NS_PER_US,
                "pid": process,
                "tid": track,
                "args": {
                    "cost": action.cost_key,
                    "action": action.schedule_index,
                    **details[action.schedule_index],
                },
            }


def _metadata(process: int, name: str, args: Mapping[str, Any], track: int = 0) -> Event:
    return {"name": name, "ph": "M", "pid": process, "tid": track, "args": dict(args)}


def _track(action: ExpectedAction) -> int:
    return _STORAGE if action.kind is None else _PROCESSOR


def _name(action: ExpectedAction) -> str:
    match action.what:
        case "recompute":
            return f"{action.label} (recomputed)"
        case "page_out":
            return f"out: {action.label}"
        case "page_in":
            return f"in: {action.label}"
    return action.label


def _memory(process: int, levels: Sequence[Level]) -> Iterator[Event]:
    for level in levels:
        yield {
            "name": "bytes in RAM",
            "ph": "C",
            "ts": round(level.time_s * _NS_PER_S) / _NS_PER_US,
            "pid": process,
            "args": {"bytes": level.bytes},
        }


def _costs(action: ExpectedAction) -> dict[str, Any]:
    return {**_interval("time_s", action.time_s), **_interval("energy_j", action.energy_j)}


def _interval(name: str, interval: Interval) -> dict[str, Any]:
    return {
        name: interval.median,
        f"{name}_low": interval.low,
        f"{name}_high": interval.high,
    }


def _times(action: ReplayedAction) -> dict[str, Any]:
    times = action.time_s
    return {
        **_interval("predicted_time_s", times.predicted),
        **_interval("measured_time_s", times.measured),
        "difference": times.difference,
        "beyond_intervals": times.beyond,
    }

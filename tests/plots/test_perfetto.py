"""Perfetto traces, checked against the rules of Chrome's trace event format."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plots.perfetto import perfetto_trace
from replay.expectation import expected_step
from solver.overlap.overlap import overlap_transfers
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Schedule
from solver.referee.referee import replay
from tests.support.graphs.graph_strategies import action_lists, small_graphs
from tests.support.onboard.replays import measured_step, paged_chain, report_of, scheduled

PREDICTED, MEASURED = 1, 2
PROCESSOR, STORAGE = 1, 2


def slices(trace: dict[str, Any], process: int, track: int | None = None) -> list[dict[str, Any]]:
    return [
        event
        for event in trace["traceEvents"]
        if event["ph"] == "X" and event["pid"] == process and track in (None, event["tid"])
    ]


def levels(trace: dict[str, Any], process: int) -> list[int]:
    found = [e for e in trace["traceEvents"] if e["ph"] == "C" and e["pid"] == process]
    assert all(a["ts"] <= b["ts"] for a, b in pairwise(found))
    return [event["args"]["bytes"] for event in found]


def assert_well_formed(trace: dict[str, Any]) -> None:
    """Check that events have the fields of their phase, and slices of a track do not overlap."""
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    named: set[tuple[int, int]] = set()
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        match event["ph"]:
            case "M":
                assert event["name"] in {"process_name", "process_sort_index", "thread_name"}
                if event["name"] == "thread_name":
                    named.add((event["pid"], event["tid"]))
            case "X":
                assert event["ts"] >= 0
                assert event["dur"] >= 0
                assert isinstance(event["cat"], str)
                assert (event["pid"], event["tid"]) in named
            case "C":
                assert event["ts"] >= 0
                assert all(isinstance(value, int) for value in event["args"].values())
            case other:
                pytest.fail(f"phase {other}")
    for process, track in named:
        on_track = slices(trace, process, track)
        for before, after in pairwise(on_track):
            end_us = before["ts"] + before["dur"]
            assert end_us <= after["ts"] + 1e-9 * end_us, (before, after)


@settings(max_examples=50, derandomize=True)
@given(st.data())
def test_slices_add_up_to_the_step_and_the_counter_reaches_its_peak(data: st.DataObject) -> None:
    problem = data.draw(small_graphs())
    schedule = scheduled(problem, data.draw(action_lists(problem)))
    trace = perfetto_trace(problem, schedule, None)
    assert_well_formed(trace)
    played = replay(problem, schedule.actions)
    total_us = math.fsum(event["dur"] for event in slices(trace, PREDICTED))
    assert total_us == pytest.approx(1e6 * played.time_s)
    assert max(levels(trace, PREDICTED)) == played.peak_bytes


def _beside_ops() -> tuple[CostedGraph, Schedule]:
    problem, schedule = paged_chain()
    fields = {
        name: getattr(problem, name) for name in CostedGraph.model_fields if name != "schema_"
    }
    problem = CostedGraph(**{**fields, "asynchronous_transfers": True})
    actions = overlap_transfers(Problem(problem, schedule.budget), schedule.actions)
    return problem, schedule.model_copy(update={"actions": actions})


def test_transfers_beside_ops_have_a_separate_track() -> None:
    problem, schedule = _beside_ops()
    trace = perfetto_trace(problem, schedule, None)
    assert_well_formed(trace)
    played = replay(problem, schedule.actions)
    assert played.hidden_s > 0
    ends = [event["ts"] + event["dur"] for event in slices(trace, PREDICTED)]
    assert max(ends) == pytest.approx(1e6 * played.time_s)
    transfers = slices(trace, PREDICTED, STORAGE)
    assert {event["cat"] for event in transfers} == {"page_out", "page_in"}
    assert {event["cat"] for event in slices(trace, PREDICTED, PROCESSOR)} == {
        "forward",
        "backward",
        "recompute",
    }
    assert max(levels(trace, PREDICTED)) == played.peak_bytes


def test_trace_without_a_replay_has_no_measured_figures() -> None:
    problem, schedule = paged_chain()
    trace = perfetto_trace(problem, schedule, None)
    assert "measured" not in json.dumps(trace)
    assert "predicted (estimated)" in json.dumps(trace)


def test_trace_shows_replay_and_prediction_with_all_figures() -> None:
    problem, schedule = paged_chain(energy_source="published")
    expected = expected_step(problem, schedule)
    slow = measured_step(expected, factor=lambda action: 2.0 if action.label == "b4" else 1.0)
    trace = perfetto_trace(problem, schedule, report_of(problem, schedule, [slow] * 3))
    assert_well_formed(trace)
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert names == ["predicted (published)", "measured on bench"]
    before, after = (
        next(e for e in slices(trace, process) if e["name"] == "b4")
        for process in (PREDICTED, MEASURED)
    )
    assert after["dur"] == pytest.approx(2 * before["dur"])
    assert after["args"]["difference"] == pytest.approx(1.0)
    assert after["args"]["beyond_intervals"] is True
    assert before["args"]["time_s_low"] < before["args"]["time_s"] < before["args"]["time_s_high"]
    assert before["args"]["cost"] == after["args"]["cost"]
    assert max(levels(trace, MEASURED)) == schedule.peak_bytes


def test_trace_of_an_emulated_board_does_not_say_measured() -> None:
    problem, schedule = paged_chain(energy_source="emulated")
    report = report_of(problem, schedule).model_copy(update={"measured_energy_source": "emulated"})
    trace = json.dumps(perfetto_trace(problem, schedule, report)["traceEvents"])
    assert "bench (emulated)" in trace
    assert "measured on" not in trace


def test_slices_do_not_overlap_with_a_coarse_board_clock() -> None:
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)
    step = measured_step(expected)
    early = [
        type(span)(max(0.0, span.start_s - 1e-6 * index), span.time_s)
        for index, span in enumerate(step.spans)
    ]
    coarse = type(step)(step.time_s, spans=tuple(early), checksums=step.checksums)
    assert_well_formed(perfetto_trace(problem, schedule, report_of(problem, schedule, [coarse])))

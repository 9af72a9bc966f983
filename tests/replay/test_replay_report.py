"""Predicted and measured cost of a replay, and the explanation of their difference."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices import plan as executed
from devices.description import Storage
from devices.documents.document import read_json, write_atomically
from devices.errors import MeasurementInvalid
from devices.operation import OpSpec
from devices.plan import Action, ArenaRange, ExecutionPlan, Move, Probe
from devices.profile import Interval
from devices.program import COMMAND
from devices.replay import (
    Comparison,
    ExpectedAction,
    MeasuredStep,
    ProcessMemory,
    ReplayReport,
    Span,
    ValueCheck,
)
from devices.wear import wear
from replay.expectation import expected_step, memory_levels
from replay.reporting.diagnosis import MOST_OF_IT, Part, diagnose, remedy
from replay.reporting.report import replay_report, value_check
from replay.reporting.timing import ScheduledActions
from solver.problem.graph import CostedGraph, PageCost
from solver.problem.schedule import Action as ScheduleAction
from solver.problem.schedule import Compute, Free, PageOut, Schedule
from solver.referee.referee import replay
from tests.support.graphs.graph_examples import actions, graph, op, tensor
from tests.support.graphs.graph_strategies import action_lists, small_graphs
from tests.support.onboard.replays import (
    SUBJECT,
    Factor,
    measured_replay,
    measured_step,
    paged_chain,
    plan_of,
    report_of,
    scheduled,
)

# --- expectation ------------------------------------------------------------------------------


@settings(max_examples=40, derandomize=True)
@given(st.data())
def test_actions_add_up_to_the_referees_totals(data: st.DataObject) -> None:
    problem = data.draw(small_graphs())
    schedule = scheduled(problem, data.draw(action_lists(problem)))
    played = replay(problem, schedule.actions)
    expected = expected_step(problem, schedule)
    assert math.fsum(a.time_s.median for a in expected.actions) == pytest.approx(played.time_s)
    assert math.fsum(a.energy_j.median for a in expected.actions) == pytest.approx(played.energy_j)
    assert expected.time_s == Interval.exact(played.time_s), "no cost has an interval"
    assert expected.peak_bytes == max(level.bytes for level in memory_levels(played))


@settings(max_examples=40)
@given(st.data())
def test_memory_over_time_is_as_predicted_if_all_durations_are(data: st.DataObject) -> None:
    problem = data.draw(small_graphs())
    schedule = scheduled(problem, data.draw(action_lists(problem)))
    played = replay(problem, schedule.actions)
    spans = {
        action.schedule_index: Span(action.start_s, action.time_s.median)
        for action in expected_step(problem, schedule).actions
    }
    assert memory_levels(played, spans) == memory_levels(played)


def _two_ops(same_key: bool) -> CostedGraph:
    """Two ops of 1 s ± 0.3 s and 1 s ± 0.4 s, with the same figures in joules."""
    problem = graph([op("f", "", "a"), op("g", "a", "b")], [tensor("a", 1), tensor("b", 1)])
    ops = [
        each.model_copy(
            update={
                "cost_key": "one figure" if same_key else each.name,
                "time_s_interval": ends,
                "energy_j_interval": ends,
            }
        )
        for each, ends in zip(problem.ops, [(0.7, 1.3), (0.6, 1.4)], strict=True)
    ]
    return CostedGraph(name="two", ops=tuple(ops), tensors=problem.tensors)


@pytest.mark.parametrize(("same_key", "half_width"), [(True, 0.7), (False, 0.5)])
def test_errors_of_one_cost_add_linearly_and_of_different_costs_in_quadrature(
    same_key: bool, half_width: float
) -> None:
    problem = _two_ops(same_key)
    expected = expected_step(problem, scheduled(problem, [Compute(op="f"), Compute(op="g")]))
    for total in (expected.time_s, expected.energy_j):
        assert total.median == 2.0
        assert total.low == pytest.approx(2.0 - half_width)
        assert total.high == pytest.approx(2.0 + half_width)


@pytest.mark.parametrize(
    ("correlation", "half_width"), [(0.0, 0.5), (0.5, math.sqrt(0.37)), (1.0, 0.7)]
)
def test_errors_of_different_costs_add_as_the_graph_says_that_they_correlate(
    correlation: float, half_width: float
) -> None:
    problem = _two_ops(same_key=False).model_copy(update={"error_correlation": correlation})
    expected = expected_step(problem, scheduled(problem, [Compute(op="f"), Compute(op="g")]))
    for total in (expected.time_s, expected.energy_j):
        assert total.low == pytest.approx(2.0 - half_width)
        assert total.high == pytest.approx(2.0 + half_width)


def test_joules_can_correlate_more_than_times() -> None:
    stated = {"error_correlation": 0.0, "energy_error_correlation": 1.0}
    problem = _two_ops(same_key=False).model_copy(update=stated)
    expected = expected_step(problem, scheduled(problem, [Compute(op="f"), Compute(op="g")]))
    assert expected.time_s.high == pytest.approx(2.5)
    assert expected.energy_j.high == pytest.approx(2.7)


def _beside(compute_s: float) -> tuple[CostedGraph, tuple[ScheduleAction, ...]]:
    """An asynchronous page-out of 3 s (2 s to 5 s) beside an op; the step waits for its end."""
    problem = graph(
        [op("make", "", "a", time_s=1.0), op("work", "", "b", time_s=compute_s)],
        [tensor("a", 4, page_out=(3.0, 1.0), page_in=(3.0, 1.0)), tensor("b", 2)],
    )
    uncertain = PageCost(
        time_s=3.0, energy_j=1.0, time_s_interval=(2.0, 5.0), energy_j_interval=(0.5, 2.0)
    )
    paged = problem.tensors[0].model_copy(update={"page_out": uncertain})
    beside = CostedGraph(
        name="beside",
        asynchronous_transfers=True,
        ops=problem.ops,
        tensors=(paged, problem.tensors[1]),
    )
    plain = actions("compute make; page_out a; compute work; free b; free a")
    asynchronous = plain[1].model_copy(update={"asynchronous": True})
    return beside, (plain[0], asynchronous, *plain[2:])


@pytest.mark.parametrize(
    ("compute_s", "low_s", "high_s"),
    [(10.0, 11.0, 11.0), (4.0, 5.0, 6.0), (1.0, 3.0, 6.0)],
    ids=["hidden", "hidden unless it is slow", "waited for"],
)
def test_an_asynchronous_transfer_adds_only_the_uncertainty_of_the_wait(
    compute_s: float, low_s: float, high_s: float
) -> None:
    problem, sequence = _beside(compute_s)
    expected = expected_step(problem, _with_transfers_beside(problem, sequence))
    assert (expected.time_s.low, expected.time_s.high) == (low_s, high_s)
    assert (expected.energy_j.low, expected.energy_j.high) == (2.5, 4.0)
    page_out = next(action for action in expected.actions if action.what == "page_out")
    assert page_out.asynchronous
    assert (page_out.start_s, page_out.time_s.median) == (1.0, 3.0)
    assert expected.waited_s == max(0.0, 3.0 - compute_s)


def _with_transfers_beside(problem: CostedGraph, sequence: tuple[ScheduleAction, ...]) -> Schedule:
    synchronous = [
        each.model_copy(update={"asynchronous": False}) if isinstance(each, PageOut) else each
        for each in sequence
        if not isinstance(each, Free)
    ]
    return scheduled(problem, synchronous).model_copy(update={"actions": sequence})


def test_a_schedule_without_steps_has_no_expectation() -> None:
    problem, schedule = paged_chain()
    with pytest.raises(ValueError, match="the schedule of a chain has no actions: infeasible"):
        expected_step(problem, schedule.model_copy(update={"actions": (), "status": "infeasible"}))


# --- a replay as expected ---------------------------------------------------------------------


def test_a_replay_that_went_as_expected_differs_in_nothing() -> None:
    problem, schedule = paged_chain()
    report = report_of(problem, schedule)
    assert report.time_s.difference == pytest.approx(0.0)
    assert all(action.time_s.difference == pytest.approx(0.0) for action in report.actions)
    assert not any(action.time_s.beyond for action in report.actions)
    assert math.fsum(action.share for action in report.actions) == pytest.approx(1.0)
    assert report.diagnosis.responsible == ()
    assert report.diagnosis.refine == ()
    assert "the intervals overlap" in report.diagnosis.sentences[0]
    assert remedy(report.diagnosis, "bench", "run") is None
    assert report.memory.as_predicted
    assert report.storage is not None
    assert report.storage.read_bytes.predicted == report.storage.read_bytes.measured
    assert report.storage.written_bytes.predicted == report.storage.written_bytes.measured


@settings(max_examples=40)
@given(st.data())
def test_no_schedule_is_blamed_for_a_replay_that_went_as_expected(data: st.DataObject) -> None:
    problem = data.draw(small_graphs())
    schedule = scheduled(problem, data.draw(action_lists(problem)))
    report = report_of(problem, schedule)
    assert not report.time_s.beyond
    assert report.diagnosis.responsible == ()


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)
    memory = ProcessMemory(
        peak_resident_bytes=1 << 20, limit="address space", limit_bytes=3 << 20, overhead_bytes=99
    )
    report = report_of(
        problem,
        schedule,
        [measured_step(expected, factor=lambda _: 1.5, power_w=2.0)],
        values=[ValueCheck(against="the unscheduled step on the board", values=1, steps=1)],
        memory=memory,
    )
    path = tmp_path / "replay.json"
    data = report.model_dump(mode="json", by_alias=True, exclude_none=True)
    write_atomically(path, json.dumps(data))
    # The key by which reports of any age name the place in the schedule.
    assert [action["step"] for action in data["actions"]] == [
        action.schedule_index for action in report.actions
    ]
    assert read_json(path, ReplayReport) == report


# --- a replay that differs ----------------------------------------------------------------------


def _key(number: int) -> str:
    return OpSpec.of("relu.forward", elements=number).key


def _factor(key: str, factor: float) -> Factor:
    return lambda action: factor if action.cost_key == key else 1.0


def _all(factor: float) -> Factor:
    return lambda _: factor


@pytest.mark.parametrize(("factor", "word"), [(2.0, "longer"), (0.3, "shorter")])
def test_only_the_operation_with_a_wrong_cost_is_named(factor: float, word: str) -> None:
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)
    report = report_of(
        problem, schedule, [measured_step(expected, factor=_factor(_key(3), factor))] * 5
    )
    assert [part.what for part in report.diagnosis.responsible] == [_key(3)]
    assert report.diagnosis.responsible[0].share == pytest.approx(1.0)
    assert report.diagnosis.responsible[0].labels == ("f3", "b4")
    assert report.diagnosis.refine == (_key(3),)
    assert word in report.diagnosis.sentences[0]
    assert "f3, b4" in report.diagnosis.sentences[1]
    assert {a.label for a in report.actions if a.time_s.beyond} == {"f3", "b4"}
    said = remedy(report.diagnosis, "bench", "results/replays/one")
    assert said is not None
    assert said.startswith(
        f"{COMMAND} profile --device bench --refine results/replays/one measures this op"
    )


def test_slow_storage_is_named_but_not_among_the_operations_to_refine() -> None:
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)
    report = report_of(
        problem, schedule, [measured_step(expected, factor=_factor("storage.write", 3.0))] * 5
    )
    assert [part.what for part in report.diagnosis.responsible] == ["storage.write"]
    assert report.diagnosis.refine == ()
    assert any("profile the board's storage again" in s for s in report.diagnosis.sentences)
    assert remedy(report.diagnosis, "bench", "run") is None


def test_time_between_actions_is_named_as_a_cause() -> None:
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)
    report = report_of(problem, schedule, [measured_step(expected, gap_s=1.0)] * 5)
    assert [part.what for part in report.diagnosis.responsible] == ["between"]
    between = next(entry for entry in report.other if entry.what == "between")
    assert between.time_s.measured.median == pytest.approx(len(expected.actions))
    assert "time between actions" in report.diagnosis.sentences[1]


def test_a_report_on_published_rates_asks_for_a_profile() -> None:
    problem, schedule = paged_chain()
    rated = [each.model_copy(update={"cost_key": None}) for each in problem.ops]
    problem = CostedGraph(name="rated", ops=tuple(rated), tensors=problem.tensors)
    expected = expected_step(problem, schedule)
    report = report_of(problem, schedule, [measured_step(expected, factor=_factor("f1", 9.0))] * 2)
    assert [part.what for part in report.diagnosis.responsible] == ["f1"]
    assert report.diagnosis.refine == ()
    assert "published rates" in report.diagnosis.sentences[-1]


def _replayed_beside(compute_s: float, transfer_s: float, worked_s: float) -> ReplayReport:
    """Report of the schedule of :func:`_beside` with measured durations.

    The page-out took ``transfer_s``, and the op beside it ``worked_s`` instead of ``compute_s``;
    the step ended with the later of the two.
    """
    problem, sequence = _beside(compute_s)
    schedule = _with_transfers_beside(problem, sequence)
    end_s = 1.0 + max(worked_s, transfer_s)
    spans = (Span(0.0, 1.0), Span(1.0, transfer_s), Span(1.0, worked_s), Span(end_s, 0.0))
    return report_of(problem, schedule, [MeasuredStep(end_s, spans=spans)] * 3)


def test_a_slow_transfer_is_responsible_only_for_the_wait_it_causes() -> None:
    hidden = _replayed_beside(compute_s=10.0, transfer_s=19.0, worked_s=20.0)
    assert next(a for a in hidden.actions if a.what == "page_out").time_s.beyond
    assert [part.what for part in hidden.diagnosis.responsible] == ["work"]
    waited = _replayed_beside(compute_s=1.0, transfer_s=9.0, worked_s=1.0)
    assert [part.what for part in waited.diagnosis.responsible] == ["wait"]
    assert waited.diagnosis.responsible[0].excess_s == pytest.approx(6.0)
    assert any("profile the board's storage again" in s for s in waited.diagnosis.sentences)


def test_differences_below_the_resolution_of_a_board_do_not_count() -> None:
    exact = Interval.exact(1.0)
    assert not Comparison.of(exact, Interval.exact(1.0 + 1e-7)).beyond
    assert Comparison.of(exact, Interval.exact(1.00001)).beyond


def _interval(median: float, half: float) -> Interval:
    return Interval(median=median, low=median - half, high=median + half)


def _part(name: str, predicted: Interval, measured: Interval) -> Part:
    return Part(name, name, (name,), "operation", Comparison.of(predicted, measured))


@settings(derandomize=True)
@given(
    st.lists(
        st.tuples(st.floats(1, 10), st.floats(0, 0.5), st.floats(1, 10), st.floats(0, 0.5)),
        min_size=1,
        max_size=8,
    )
)
def test_named_causes_exceed_their_intervals_and_explain_most_of_the_error(
    figures: list[tuple[float, float, float, float]],
) -> None:
    parts = [
        _part(str(i), _interval(p, dp), _interval(m, dm))
        for i, (p, dp, m, dm) in enumerate(figures)
    ]
    total = Comparison.of(
        _interval(sum(f[0] for f in figures), 0.1), _interval(sum(f[2] for f in figures), 0.1)
    )
    diagnosis = diagnose(total, parts, "measured")
    if not total.beyond:
        assert diagnosis.responsible == ()
        return
    named = [part.what for part in diagnosis.responsible]
    suspects = {part.what for part in parts if part.time_s.beyond}
    assert set(named) <= suspects
    excesses = [abs(part.excess_s) for part in diagnosis.responsible]
    assert excesses == sorted(excesses, reverse=True)
    shares = [part.share for part in diagnosis.responsible]
    allowed = 1 - MOST_OF_IT + 1e-9
    assert abs(1 - sum(shares)) <= allowed or set(named) == suspects
    if shares:
        assert abs(1 - sum(shares[:-1])) > allowed - 2e-9, "a part is named after all is explained"


def test_errors_that_cancel_are_both_named() -> None:
    parts = [
        _part("slower", _interval(10.0, 0.1), _interval(25.0, 0.1)),
        _part("faster", _interval(20.0, 0.1), _interval(6.0, 0.1)),
        _part("right", _interval(5.0, 0.1), _interval(5.05, 0.1)),
    ]
    total = Comparison.of(_interval(35.0, 0.2), _interval(36.05, 0.2))
    diagnosis = diagnose(total, parts, "emulated")
    assert "longer than predicted: emulated 36.05 s" in diagnosis.sentences[0]
    assert diagnosis.refine == ("slower", "faster")
    assert diagnosis.responsible[1].share < 0
    assert "15 s longer" in diagnosis.sentences[1]
    assert "14 s shorter" in diagnosis.sentences[2]
    assert "% of the difference" not in diagnosis.sentences[1], "1500 % would confuse"


def test_small_differences_may_add_up_to_one_outside_the_interval() -> None:
    parts = [_part(str(i), _interval(1.0, 0.2), _interval(1.1, 0.0)) for i in range(9)]
    total = Comparison.of(_interval(9.0, 0.6), _interval(9.9, 0.0))
    diagnosis = diagnose(total, parts, "measured")
    assert diagnosis.responsible == ()
    assert "many small differences" in diagnosis.sentences[-1]


# --- steps that count -------------------------------------------------------------------------


def test_checksums_are_no_part_of_a_steps_time_or_energy() -> None:
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)
    watched = measured_step(expected, probe_s=4.0, power_w=2.0)
    report = report_of(problem, schedule, [watched] * 3)
    assert report.time_s.difference == pytest.approx(0.0)
    assert report.energy_j is not None
    assert report.energy_j.measured.median == pytest.approx(2.0 * expected.time_s.median)
    probes = next(entry for entry in report.other if entry.what == "probe")
    assert probes.count == 1
    assert probes.time_s.measured.median == pytest.approx(4.0)
    assert any("checksums" in limit for limit in report.limits)


@given(st.floats(0.0, 100.0), st.floats(1e-9, 100.0))
def test_a_step_has_no_negative_time_however_long_other_programs_interrupt_its_checksums(
    probe_s: float, running_s: float
) -> None:
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)
    measured = measured_step(expected, probe_s=probe_s, power_w=2.0)
    report = report_of(problem, schedule, [replace(measured, time_s=running_s)] * 3)
    assert 0.0 <= report.time_s.measured.median <= running_s
    assert report.energy_j is not None
    assert 0.0 <= report.energy_j.measured.median <= 2.0 * measured.time_s


def test_times_come_from_the_unwatched_steps() -> None:
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)
    plain = [MeasuredStep(time_s, energy_j=time_s) for time_s in (20.0, 21.0, 25.0)]
    report = report_of(problem, schedule, [measured_step(expected, power_w=50.0), *plain])
    assert report.time_s.measured == Interval(median=21.0, low=20.0, high=25.0)
    assert report.energy_j is not None
    assert report.energy_j.measured.median == 21.0
    assert (report.steps, report.watched_steps) == (3, 1)
    assert report.limits[0].startswith("watched steps took 1.21 times")
    near = [MeasuredStep(expected.time_s.median)] * 3
    quiet = report_of(problem, schedule, [measured_step(expected), *near])
    assert not any("watched" in limit for limit in quiet.limits)


def test_a_report_states_that_no_step_has_an_energy() -> None:
    problem, schedule = paged_chain()
    report = report_of(problem, schedule)
    assert report.energy_j is None
    assert any("no step has an energy" in limit for limit in report.limits)


def test_the_begin_of_each_action_is_that_of_the_median_step() -> None:
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)
    measured = [measured_step(expected, factor=_all(factor)) for factor in (1.3, 1.0, 1.1)]
    report = report_of(problem, schedule, measured)
    second = report.actions[1]
    assert second.start_s == pytest.approx(1.1 * second.expected_start_s)
    assert second.run_s == pytest.approx(1.1 * second.time_s.predicted.median)


def test_a_replay_without_watched_steps_is_refused() -> None:
    problem, schedule = paged_chain()
    with pytest.raises(
        MeasurementInvalid, match=r"bench: the replay of made-up\.json has no watched step"
    ):
        report_of(problem, schedule, [MeasuredStep(1.0)])


def test_the_plan_of_another_schedule_is_refused() -> None:
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)
    plan = plan_of(problem, expected)
    other = replace(plan, actions=plan.actions[1:])
    measured = measured_replay(plan, expected, [measured_step(expected)])
    with pytest.raises(ValueError, match="is of another schedule: action 0 of this schedule"):
        replay_report(SUBJECT, expected, other, measured, (), 1000)
    longer = replace(plan, actions=(*plan.actions, replace(plan.actions[0], schedule_index=999)))
    with pytest.raises(ValueError, match="the plan carries out 21 actions"):
        replay_report(SUBJECT, expected, longer, measured, (), 1000)


# --- where the time of a step goes --------------------------------------------------------------


def _plan(*actions: Action) -> tuple[ExecutionPlan, ScheduledActions]:
    plan = ExecutionPlan("timed", 0, {}, (), actions)
    expected = [
        ExpectedAction(
            schedule_index=action.schedule_index,
            label=getattr(action.does, "op", None) or getattr(action.does, "tensor", ""),
            what="compute",
            cost_key="k",
            start_s=0.0,
            time_s=Interval.exact(1.0),
            energy_j=Interval.exact(1.0),
        )
        for action in actions
        if action.schedule_index is not None
    ]
    return plan, ScheduledActions.of(plan, expected)


def _compute(index: int, waits_for: int = 0) -> Action:
    spec = OpSpec.of("relu.forward", elements=1)
    return Action(executed.Compute(f"op{index}", spec, (0,), (0,), None, {}), waits_for, index)


_NOWHERE = ArenaRange(0, 4)


def test_step_time_is_divided_into_actions_waits_moves_and_gaps() -> None:
    beside = Action(executed.PageOut("t", _NOWHERE, 0, asynchronous=True), schedule_index=1)
    moved = Action(Move("t", _NOWHERE, 8))
    probed = Action(Probe("t", "loss", _NOWHERE))
    _, timed = _plan(_compute(0), beside, _compute(2), _compute(3, waits_for=1), moved, probed)
    spans = (
        Span(0.5, 1.0),  # op 0
        Span(1.5, 4.0),  # the transfer, until 5.5
        Span(1.75, 1.0),  # op 2 beside it, until 2.75
        Span(5.5, 1.0),  # op 3 has waited for it
        Span(6.5, 0.25),  # the move
        Span(7.0, 2.0),  # the probe, until 9
    )
    step = timed.watched(MeasuredStep(10.0, spans=spans))
    assert step.other_s == {
        "move": 0.25,
        "probe": 2.0,
        "rows": 0.0,
        "wait": 2.75,
        "between": 0.5 + 0.5 + 1.0,
    }
    assert (timed.waits, timed.moves) == (1, 1)
    assert step.spans[1] == Span(1.5, 4.0)


def test_the_end_of_a_step_waits_for_the_last_transfer() -> None:
    beside = Action(executed.PageOut("t", _NOWHERE, 0, asynchronous=True), schedule_index=1)
    _, timed = _plan(_compute(0), beside)
    step = timed.watched(MeasuredStep(6.0, spans=(Span(0.0, 1.0), Span(1.0, 4.0))))
    assert step.other_s["wait"] == 4.0
    assert step.other_s["between"] == 1.0


def test_a_synchronous_transfer_waits_for_transfers_under_way() -> None:
    beside = Action(executed.PageOut("t", _NOWHERE, 0, asynchronous=True), schedule_index=0)
    alone = Action(executed.PageIn("u", _NOWHERE, 0), schedule_index=1)
    _, timed = _plan(beside, alone, _compute(2, waits_for=2))
    step = timed.watched(MeasuredStep(6.0, spans=(Span(0.0, 2.0), Span(2.0, 1.0), Span(3.0, 3.0))))
    assert step.other_s["wait"] == 2.0
    assert step.other_s["between"] == 0.0


# --- values ---------------------------------------------------------------------------------------


def _probing(*names: str) -> ExecutionPlan:
    actions = tuple(Action(Probe(name, "gradient", _NOWHERE)) for name in names)
    return ExecutionPlan(f"probes {' '.join(names)}", 0, {}, (), actions)


def _checksums(*steps_: tuple[int, ...]) -> list[MeasuredStep]:
    return [MeasuredStep(1.0, checksums=values) for values in steps_]


def test_values_are_compared_by_name_and_not_by_order() -> None:
    check = value_check(
        "the unscheduled step on the board",
        _probing("a", "b"),
        _checksums((1, 2), (3, 4)),
        _probing("b", "a"),
        _checksums((2, 1), (4, 3)),
    )
    assert check.identical
    assert (check.values, check.steps) == (2, 2)


def test_values_that_differ_are_named_with_their_steps() -> None:
    check = value_check(
        "the same plan on this computer",
        _probing("a", "b"),
        _checksums((1, 2), (1, 2), (1, 9)),
        _probing("a", "b"),
        _checksums((1, 2), (1, 3), (1, 2), (7, 7)),
    )
    assert not check.identical
    assert [(value.tensor, value.what, value.steps) for value in check.differing] == [
        ("b", "gradient", (1, 2))
    ]
    assert check.steps == 3


def test_only_steps_watched_on_both_sides_are_compared() -> None:
    mine = [MeasuredStep(1.0), *_checksums((5,))]
    check = value_check(
        "the unscheduled step on the board",
        _probing("a"),
        mine,
        _probing("a"),
        _checksums((1,), (5,)),
    )
    assert check.identical
    assert check.steps == 1


def test_plans_that_observe_different_values_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="gradient b is probed in only one of probes a"):
        value_check("the unscheduled step on the board", _probing("a"), [], _probing("a", "b"), [])


# --- wear -----------------------------------------------------------------------------------------


def test_raw_flash_lasts_as_many_erases_as_its_blocks_endure() -> None:
    nor = Storage(
        medium="nor-flash",
        driver="nor",
        page_bytes=256,
        erase_block_bytes=4096,
        scratch_bytes=1 << 20,
        endurance_cycles=100_000,
    )
    found = wear(nor, 5000, 2, part_bytes=8192, steps_per_day=100)
    # 256 blocks of 100,000 cycles each; a step erases two of them.
    assert found.years == pytest.approx(256 * 100_000 / 2 / 100 / 365.25)
    assert not found.at_most
    assert wear(nor, 1, 3, part_bytes=3 * 4096, steps_per_day=1).spread_bytes == 255 * 4096


def test_the_lifetime_of_a_card_is_bounded_by_the_endurance_of_its_capacity() -> None:
    card = Storage(medium="sd", path="~", capacity_bytes=10**10, endurance_cycles=1000)
    found = wear(card, 10**6, 0, part_bytes=10**6, steps_per_day=1000)
    assert found.years == pytest.approx(10**10 * 1000 / 10**6 / 1000 / 365.25)
    assert found.at_most
    assert "an unknown amount" in (found.reason or "")


@pytest.mark.parametrize(
    ("storage", "missing"),
    [
        (Storage(medium="sd", path="~", capacity_bytes=10**10), "endurance_cycles"),
        (Storage(medium="emmc", path="~", endurance_cycles=1000), "capacity_bytes"),
    ],
)
def test_the_reason_names_the_missing_key_of_the_description(
    storage: Storage, missing: str
) -> None:
    found = wear(storage, 10**6, 0, part_bytes=10**6, steps_per_day=1000)
    assert found.years is None
    assert found.reason is not None
    assert found.reason.endswith(f"states no {missing}")


def test_storage_that_is_not_written_does_not_wear() -> None:
    card = Storage(medium="sd", path="~", capacity_bytes=10**10, endurance_cycles=1000)
    found = wear(card, 0, 0, part_bytes=0, steps_per_day=1000)
    assert found.years is None
    assert "writes nothing" in (found.reason or "")


def test_safety_copies_count_as_written_and_are_listed_apart() -> None:
    problem, schedule = paged_chain()
    storage = report_of(problem, schedule).storage
    assert storage is not None
    # Four page-outs of less than a page each, and the record.
    assert storage.scheduled_bytes == 4 * 4096
    assert storage.safety_bytes == 4096
    assert storage.wear.written_bytes_per_step == 5 * 4096

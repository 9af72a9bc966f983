"""Operations measured again in the context in which they run, and the profiles that hold that."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.document import DocumentError, dump_yaml, read_yaml
from devices.operation import OpSpec
from devices.plan import Action, Compute, ExecutionPlan
from devices.profile import DeviceProfile, EnergySource, Interval, OperationCost
from devices.replay import ExpectedAction, MeasuredStep, Span
from profiler.refine import (
    FEWEST_STEPS,
    MOST_STEPS,
    Executions,
    Provenance,
    measure_in_context,
    refinable,
    refine_profile,
)
from profiler.replay.timing import ScheduledActions
from tests.plots_support import made_up_profile

RELU = OpSpec.of("relu.forward", elements=64)
ADD = OpSpec.of("add.forward", elements=64)
PROVENANCE = Provenance("chain, on bench", "results/replays/chain", "2026-01-31T12:00:00+00:00")

# A step of the schedule for each: relu twice, with add between.
ORDER = (RELU, ADD, RELU)


def executions(*keys: str) -> Executions:
    plan = ExecutionPlan(
        name="chain",
        arena_bytes=1024,
        inputs={},
        kept=(),
        actions=tuple(
            Action(Compute(f"op{i}", spec, (0,) * len(spec.reads), (0,), None, {}), step=i)
            for i, spec in enumerate(ORDER)
        ),
    )
    expected = [
        ExpectedAction(
            step=i,
            label=f"op{i}",
            what="compute",
            cost_key=spec.key,
            kind=spec.kind,
            phase="forward",
            start_s=0.0,
            time_s=Interval.exact(1e-3),
            energy_j=Interval.exact(1e-3),
        )
        for i, spec in enumerate(ORDER)
    ]
    return Executions.of(ScheduledActions.of(plan, expected), expected, keys or (RELU.key,))


def measured(*times_s: float, energy_j: float | None = None) -> MeasuredStep:
    starts = [math.fsum(times_s[:i]) for i in range(len(times_s))]
    spans = tuple(Span(start, time_s) for start, time_s in zip(starts, times_s, strict=True))
    return MeasuredStep(math.fsum(times_s), energy_j, spans)


def cost_of(profile: DeviceProfile, spec: OpSpec) -> OperationCost:
    return profile.by_spec[spec]


# --- the estimator ----------------------------------------------------------------------------

TIMES = st.floats(1e-6, 1.0)


@given(st.lists(st.tuples(TIMES, TIMES, TIMES), min_size=1, max_size=12))
def test_executions_at_their_cost_add_up_to_what_they_take_in_a_step(
    times: list[tuple[float, float, float]],
) -> None:
    steps = [measured(*of_step) for of_step in times]
    cost = executions().time_s(RELU.key, steps)
    in_step = statistics.median(first + second for first, _, second in times)
    assert 2 * cost.median == pytest.approx(in_step)
    means = [(first + second) / 2 for first, _, second in times]
    assert min(means) <= cost.low * (1 + 1e-9)
    assert cost.high <= max(means) * (1 + 1e-9)


def test_executions_that_differ_from_each_other_are_no_uncertainty() -> None:
    steps = [measured(1e-3, 5e-3, 9e-3)] * 10
    cost = executions().time_s(RELU.key, steps)
    assert cost.median == pytest.approx(5e-3)
    assert cost.low == cost.high


def test_what_delays_now_one_execution_now_another_is_counted() -> None:
    """Each is delayed in two steps of five, so that its own median shows nothing of it; in four of
    five one of them is."""
    delays = [(2e-3, 0.0), (2e-3, 0.0), (0.0, 2e-3), (0.0, 2e-3), (0.0, 0.0)] * 2
    steps = [measured(1e-3 + first, 1e-3, 1e-3 + second) for first, second in delays]
    assert executions().time_s(RELU.key, steps).median == pytest.approx(2e-3)


def test_an_operation_that_never_runs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"never executes sgd\.update elements=8"):
        executions("sgd.update elements=8")


# --- how long -------------------------------------------------------------------------------------


def running(
    time_s: Callable[[int], float],
) -> tuple[list[int], Callable[[int], list[MeasuredStep]]]:
    """What was asked for, and a board whose step number i takes ``time_s(i)`` for each op."""
    asked: list[int] = []

    def run(count: int) -> list[MeasuredStep]:
        done = sum(asked)
        asked.append(count)
        return [measured(*[time_s(done + i)] * 3) for i in range(count)]

    return asked, run


def test_few_steps_do_where_they_agree() -> None:
    asked, run = running(lambda i: 1e-3 + 1e-6 * (i % 3))
    assert len(measure_in_context(run, executions())) == FEWEST_STEPS
    assert asked == [FEWEST_STEPS]


def test_more_steps_are_run_until_the_interval_is_narrow() -> None:
    asked, run = running(lambda i: 1e-3 if i % 3 or i > 12 else 2e-3 + 1e-4 * i)
    steps = measure_in_context(run, executions())
    assert FEWEST_STEPS < len(steps) < MOST_STEPS
    assert sum(asked) == len(steps)


def test_steps_that_never_agree_end_at_the_most() -> None:
    _, run = running(lambda i: 1e-3 * (1 + i % 7))
    assert len(measure_in_context(run, executions())) == MOST_STEPS


def test_no_step_is_begun_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler.refine.LIMIT_S", 0.0)
    _, run = running(lambda i: 1e-3 * (1 + i % 7))
    assert len(measure_in_context(run, executions())) == FEWEST_STEPS


# --- the profile --------------------------------------------------------------------------------

STEPS = [measured(2e-3, 1e-3, 4e-3, energy_j=14e-3)] * 10


def refined(
    energy_source: EnergySource = "measured",
    power_w: float | None = 3.0,
    steps: Sequence[MeasuredStep] = STEPS,
) -> tuple[DeviceProfile, DeviceProfile]:
    before = made_up_profile([RELU, ADD], energy_source, power_w)
    after, _ = refine_profile(before, steps, executions(), PROVENANCE)
    return before, after


def test_only_what_was_measured_again_changes() -> None:
    before, after = refined()
    assert cost_of(after, ADD) == cost_of(before, ADD)
    relu = cost_of(after, RELU)
    assert (relu.warm, relu.cold) == (cost_of(before, RELU).warm, cost_of(before, RELU).cold)
    assert relu.in_context is not None
    assert relu.cost("cold") == relu.cost("warm") == relu.in_context
    assert relu.in_context.time_s.median == pytest.approx(3e-3)
    assert (relu.in_context.trials, relu.in_context.executions) == (10, 2)
    assert after.storage == before.storage


def test_the_operations_are_told_with_what_was_used_before() -> None:
    before = made_up_profile([RELU, ADD])
    once, (first,) = refine_profile(before, STEPS, executions(), PROVENANCE)
    assert first.before == cost_of(before, RELU).cold
    slower = [measured(4e-3, 1e-3, 8e-3)] * 10
    twice, (second,) = refine_profile(once, slower, executions(), PROVENANCE)
    assert second.before == first.now
    assert second.ratio == pytest.approx(2.0)
    assert len(twice.notes) == len(once.notes) == 1


def test_joules_are_seconds_at_the_mean_power_of_the_steps() -> None:
    _, after = refined("measured")
    cost = cost_of(after, RELU).in_context
    assert cost is not None
    assert cost.energy_j is not None
    assert cost.power == "mean of the steps"
    assert cost.energy_j.median == pytest.approx(3e-3 * 2.0)  # 14 mJ in 7 ms
    assert "mean power of the steps" in after.notes[-1]


def test_joules_are_no_surer_than_seconds_and_watts_together() -> None:
    steps = [
        measured(2e-3 + 1e-5 * (i % 5), 1e-3, 4e-3, energy_j=14e-3 + 1e-4 * (i % 7))
        for i in range(10)
    ]
    _, after = refined("measured", steps=steps)
    cost = cost_of(after, RELU).in_context
    assert cost is not None
    assert cost.energy_j is not None
    assert 1 - cost.energy_j.low / cost.energy_j.median > 1 - cost.time_s.low / cost.time_s.median
    assert cost.energy_j.high / cost.energy_j.median > cost.time_s.high / cost.time_s.median


def test_steps_too_short_for_the_meter_leave_an_operation_its_own_power() -> None:
    before, after = refined("measured", steps=[measured(2e-3, 1e-3, 4e-3)] * 10)
    cost, alone = cost_of(after, RELU).in_context, cost_of(before, RELU).cold
    assert cost is not None
    assert cost.energy_j is not None
    assert alone.energy_j is not None
    assert cost.power == "in isolation"
    power_w = alone.energy_j.median / alone.time_s.median
    assert cost.energy_j.median == pytest.approx(3e-3 * power_w)


def test_estimated_joules_stay_nominal_power_times_seconds() -> None:
    _, after = refined("estimated", 3.0)
    cost = cost_of(after, RELU).in_context
    assert cost is not None
    assert cost.energy_j is not None
    assert cost.power == "nominal"
    assert cost.energy_j.median == pytest.approx(3e-3 * 3.0)
    assert "nominal power" in after.notes[-1]


def test_without_joules_before_there_are_none_now() -> None:
    _, after = refined("estimated", None)
    cost = cost_of(after, RELU).in_context
    assert cost is not None
    assert (cost.power, cost.energy_j) == (None, None)


def test_a_refined_profile_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    _, after = refined()
    (tmp_path / "bench.yaml").write_text(dump_yaml(after))
    assert read_yaml(tmp_path / "bench.yaml", DeviceProfile) == after


def test_operations_that_were_predicted_are_told_apart() -> None:
    profile = made_up_profile([RELU])
    costs_s = {RELU.key: cost_of(profile, RELU).cold.time_s.median, ADD.key: 1.0}
    known = refinable(profile, costs_s, (RELU.key, ADD.key), "run/graph.json")
    assert known == ((RELU.key,), (ADD.key,))


def test_a_profile_that_has_changed_since_the_run_is_refused() -> None:
    before, after = refined()
    costs_s = {RELU.key: cost_of(before, RELU).cold.time_s.median}
    with pytest.raises(DocumentError, match=r"run/graph.json: relu.forward .* Solve and run again"):
        refinable(after, costs_s, (RELU.key,), "run/graph.json")

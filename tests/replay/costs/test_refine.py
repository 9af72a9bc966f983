"""Operations measured again in the context in which they run, and the refined profiles."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cli
from commands.wording import short_key
from devices.claims.claim import sole_writer
from devices.description import DeviceDescription
from devices.documents.document import DocumentError, dump_yaml, read_json, read_yaml
from devices.errors import MeasurementInvalid
from devices.operation import OpSpec
from devices.plan import Action, Compute, ExecutionPlan
from devices.profile import (
    BoardIdentity,
    Build,
    Cost,
    DeviceProfile,
    EnergySource,
    Interval,
    OperationCost,
    PlaceCost,
    ProfiledNetwork,
    Sitting,
    StepCosts,
)
from devices.replay import ExpectedAction, MeasuredReplay, MeasuredStep, ReplayReport, Span
from networks.data import generated_batches
from networks.models import build_model, profiled_network
from networks.training import TrainingStep
from networks.training.codecs import specs_in_all_forms
from networks.training.initial import initial_values
from profiler.statistics import later_intervals
from replay.costs.context import FEWEST_SITTINGS, step_costs, with_step_costs
from replay.costs.measure_again import measure_again
from replay.costs.refine import (
    FEWEST_STEPS,
    MOST_STEPS,
    Executions,
    Provenance,
    measure_in_context,
    refinable,
    refine_profile,
)
from replay.costs.sittings import WatchedSitting
from replay.directory import StoredRun
from replay.expectation import expected_step
from replay.lowering.lowering import lower
from replay.reporting.report import ReportHead, replay_report
from replay.reporting.timing import ScheduledActions
from replay.running.measured import ReplayRecord
from replay.running.opening import MakePlans, open_replay
from replay.running.session import Progress, ReplaySession
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.costing.model import CostModel
from solver.costing.situation import Situation
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Budget, Schedule
from solver.referee.referee import replay
from solver.solving.solving import solve_graph
from tests.support.boards.measuring import describe
from tests.support.documents import write_json
from tests.support.graphs.profiles import made_up_profile
from tests.support.graphs.schedules import restated
from tests.support.onboard.replays import measured_step, report_of

RELU = OpSpec.of("relu.forward", elements=64)
ADD = OpSpec.of("add.forward", elements=64)
PROVENANCE = Provenance("chain, on bench", "results/replays/chain", "2026-01-31T12:00:00+00:00")

# An action of the schedule for each: relu twice, with add between.
ORDER = (RELU, ADD, RELU)


def executions(*keys: str) -> Executions:
    plan = ExecutionPlan(
        name="chain",
        arena_bytes=1024,
        inputs={},
        kept=(),
        actions=tuple(
            Action(
                Compute(f"op{i}", spec, (0,) * len(spec.reads), (0,), None, {}), schedule_index=i
            )
            for i, spec in enumerate(ORDER)
        ),
    )
    expected = [
        ExpectedAction(
            schedule_index=i,
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


@settings(derandomize=True)
@given(st.lists(st.tuples(TIMES, TIMES, TIMES), min_size=1, max_size=12))
def test_the_cost_in_context_times_the_executions_is_the_time_in_a_step(
    times: list[tuple[float, float, float]],
) -> None:
    steps = [measured(*of_step) for of_step in times]
    cost = executions().time_s(RELU.key, steps)
    in_step = statistics.median(first + second for first, _, second in times)
    assert 2 * cost.median == pytest.approx(in_step)
    means = [(first + second) / 2 for first, _, second in times]
    assert min(means) <= cost.low * (1 + 1e-9)
    assert cost.high <= max(means) * (1 + 1e-9)


def test_a_difference_between_executions_does_not_widen_the_interval() -> None:
    steps = [measured(1e-3, 5e-3, 9e-3)] * 10
    cost = executions().time_s(RELU.key, steps)
    assert cost.median == pytest.approx(5e-3)
    assert cost.low == cost.high


def test_delays_that_hit_different_executions_in_turn_are_counted() -> None:
    """Each execution is delayed in two steps of five, which its own median hides.

    One of the two is delayed in four steps of five.
    """
    delays = [(2e-3, 0.0), (2e-3, 0.0), (0.0, 2e-3), (0.0, 2e-3), (0.0, 0.0)] * 2
    steps = [measured(1e-3 + first, 1e-3, 1e-3 + second) for first, second in delays]
    assert executions().time_s(RELU.key, steps).median == pytest.approx(2e-3)


def test_an_operation_that_never_runs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"never executes sgd\.update elements=8"):
        executions("sgd.update elements=8")


def test_steps_disturbed_by_other_programs_do_not_count() -> None:
    kept, delayed, void = [measured(1e-3, 1e-3, 1e-3) for _ in range(3)]
    record = ReplayRecord(
        plan=executions().actions.plan,
        steps=(delayed, kept, void),
        elapsed_s=(7e-3, 3.1e-3, 3e-3),
        disturbed={2: "the frequency went from 1000 to 500 kHz"},
        unmetered={},
        counters=None,
        memory=None,
        power=None,
        losses=(),
        values={},
    )
    (found,) = record.quiet_steps
    assert found is kept


def test_too_few_undisturbed_steps_are_no_measurement() -> None:
    with pytest.raises(MeasurementInvalid, match="chain: 0 of 100 steps were undisturbed"):
        measure_in_context(lambda _: (), executions())


# --- number of steps ------------------------------------------------------------------------------


def running(
    time_s: Callable[[int], float],
) -> tuple[list[int], Callable[[int], list[MeasuredStep]]]:
    """Requested step counts, and a board whose step i takes ``time_s(i)`` seconds for each op."""
    asked: list[int] = []

    def run(count: int) -> list[MeasuredStep]:
        done = sum(asked)
        asked.append(count)
        return [measured(*[time_s(done + i)] * 3) for i in range(count)]

    return asked, run


def test_steps_that_agree_end_the_measurement_early() -> None:
    asked, run = running(lambda i: 1e-3 + 1e-6 * (i % 3))
    assert len(measure_in_context(run, executions())) == FEWEST_STEPS
    assert asked == [FEWEST_STEPS]


def test_more_steps_are_run_until_the_interval_is_narrow() -> None:
    asked, run = running(lambda i: 1e-3 if i % 3 or i > 12 else 2e-3 + 1e-4 * i)
    steps = measure_in_context(run, executions())
    assert FEWEST_STEPS < len(steps) < MOST_STEPS
    assert sum(asked) == len(steps)


def test_steps_that_never_agree_end_at_the_largest_number_of_steps() -> None:
    _, run = running(lambda i: 1e-3 * (1 + i % 7))
    assert len(measure_in_context(run, executions())) == MOST_STEPS


def test_no_step_begins_after_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replay.costs.refine.LIMIT_S", 0.0)
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


def test_only_the_refined_operations_change_in_a_profile() -> None:
    before, after = refined()
    assert cost_of(after, ADD) == cost_of(before, ADD)
    relu = cost_of(after, RELU)
    assert (relu.warm, relu.cold) == (cost_of(before, RELU).warm, cost_of(before, RELU).cold)
    assert relu.in_context is not None
    assert relu.cost("cold") == relu.cost("warm") == relu.in_context
    assert relu.in_context.time_s.median == pytest.approx(3e-3)
    assert (relu.in_context.trials, relu.in_context.executions) == (10, 2)
    assert after.storage == before.storage


def test_costs_in_places_give_way_to_those_of_the_refined_schedule() -> None:
    watched = [
        PlaceCost(
            op=op,
            key=spec.key,
            time_s=Interval.exact(1.0),
            energy_j=Interval.exact(3.0),
            sittings_s=(1.0,),
        )
        for op, spec in (("first", RELU), ("second", ADD))
    ]
    costs = StepCosts(
        network=ProfiledNetwork(model="chain", batch=1, optimizer="sgd"),
        sittings=(Sitting(schedule="unscheduled", steps=3, measured=PROVENANCE.measured),),
        correlation=0.2,
        places=tuple(watched),
    )
    before = made_up_profile([RELU, ADD]).changed(step_costs=(costs,))
    assert refinable(before, {RELU.key: 1.0}, (RELU.key,), "run/graph.json") == ((RELU.key,), ())
    after, (found,) = refine_profile(before, STEPS, executions(), PROVENANCE)
    assert found.before.time_s.median == 1.0
    assert [place.op for place in after.step_costs[0].places] == ["second"]


def test_a_refinement_lists_each_operation_with_its_earlier_cost() -> None:
    before = made_up_profile([RELU, ADD])
    once, (first,) = refine_profile(before, STEPS, executions(), PROVENANCE)
    assert first.before == cost_of(before, RELU).cold
    slower = [measured(4e-3, 1e-3, 8e-3)] * 10
    twice, (second,) = refine_profile(once, slower, executions(), PROVENANCE)
    assert second.before == first.now
    assert second.ratio == pytest.approx(2.0)
    assert len(twice.notes) == len(once.notes) == 1


def test_energies_of_a_steps_operations_add_up_to_what_the_meter_shows() -> None:
    before = made_up_profile([RELU, ADD], "measured")
    after, _ = refine_profile(before, STEPS, executions(RELU.key, ADD.key), PROVENANCE)
    costs = [cost_of(after, spec).in_context for spec in (RELU, ADD)]
    assert [cost.power for cost in costs if cost is not None] == ["scaled to the steps"] * 2
    joules = [
        cost.executions * cost.energy_j.median
        for cost in costs
        if cost is not None and cost.energy_j is not None
    ]
    assert sum(joules) == pytest.approx(14e-3)
    assert "scaled to that of the steps" in after.notes[-1]


def test_the_energy_interval_covers_the_error_of_time_and_power() -> None:
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


def of_sittings(values: Sequence[float], in_places: bool) -> DeviceProfile:
    """A profile with the seconds of relu in sittings: in a place of a step, or by itself."""
    profile = made_up_profile([RELU], "measured")
    (interval,) = later_intervals([values])
    joules = interval.scaled(3.0)
    if in_places:
        sitting = Sitting(schedule="unscheduled", steps=3, measured=PROVENANCE.measured)
        place = PlaceCost(
            op="first", key=RELU.key, time_s=interval, energy_j=joules, sittings_s=tuple(values)
        )
        costs = StepCosts(
            network=ProfiledNetwork(model="chain", batch=1, optimizer="sgd"),
            sittings=(sitting,) * len(values),
            correlation=0.0,
            places=(place,),
        )
        return profile.changed(step_costs=(costs,))
    cost = Cost(time_s=interval, energy_j=joules, trials=len(values))
    return profile.changed(
        operations=[cost_of(profile, RELU).model_copy(update={"warm": cost, "cold": cost})]
    )


@pytest.mark.slow
@pytest.mark.parametrize("in_places", [True, False])
@pytest.mark.parametrize("times", [1, 2])
def test_the_interval_of_a_refined_cost_holds_a_later_sitting(in_places: bool, times: int) -> None:
    """Sittings differ by 5 %, the steps of one by 1 %; also if it is refined once more."""
    held = []
    for seed in range(60):
        chance = np.random.default_rng(seed)
        *before, later_s = 3e-3 * np.exp(0.05 * chance.standard_normal(9 + times + 1))
        profile = of_sittings(before[:9], in_places)
        for sitting_s in before[9:]:
            steps_s = sitting_s * np.exp(0.01 * chance.standard_normal(10))
            steps = [measured(step_s, 1e-3, step_s) for step_s in steps_s]
            profile, _ = refine_profile(profile, steps, executions(), PROVENANCE)
        found = cost_of(profile, RELU).in_context
        assert found is not None
        held.append(found.time_s.low <= later_s <= found.time_s.high)
    assert 0.9 <= np.mean(held) <= 0.99


def half_width(interval: Interval) -> float:
    return math.log(interval.high / interval.low) / 2


def test_sittings_of_one_pause_say_as_much_as_one() -> None:
    """Nine sittings in three pauses: the spread is that of a later value beside three others."""
    pauses = [pause for pause in ("first", "second", "third") for _ in range(3)]
    chance = np.random.default_rng(3)
    factors = np.exp(0.05 * np.repeat(chance.standard_normal(3), 3))
    factors *= np.exp(0.01 * chance.standard_normal(9))
    sittings = tuple(
        Sitting(
            schedule="chain",
            steps=10,
            measured=PROVENANCE.measured,
            pause=pause,
            power_factor=factor,
        )
        for pause, factor in zip(pauses, factors.tolist(), strict=True)
    )
    (of_sittings,) = later_intervals([factors.tolist()], [[0, 0, 0, 1, 1, 1, 2, 2, 2]])
    place = PlaceCost(
        op="first",
        key=RELU.key,
        time_s=of_sittings.scaled(3e-3),
        energy_j=None,
        sittings_s=tuple((3e-3 * factors).tolist()),
    )
    costs = StepCosts(
        network=ProfiledNetwork(model="chain", batch=1, optimizer="sgd"),
        sittings=sittings,
        correlation=0.0,
        places=(place,),
    )
    before = made_up_profile([RELU], "measured").changed(step_costs=(costs,))
    after, _ = refine_profile(before, STEPS, executions(), PROVENANCE)
    found = cost_of(after, RELU).in_context
    assert found is not None
    one = half_width(of_sittings) / math.sqrt(1 + 1 / 3)
    assert half_width(found.time_s) == pytest.approx(math.sqrt(2) * one)


def test_a_later_sitting_may_draw_another_power() -> None:
    """Steps of one sitting have one power; sittings differ."""
    factors = (0.9, 1.0, 1.1, 1.0, 0.95, 1.05)
    costs = StepCosts(
        network=ProfiledNetwork(model="chain", batch=1, optimizer="sgd"),
        sittings=tuple(
            Sitting(schedule="chain", steps=10, measured=PROVENANCE.measured, power_factor=factor)
            for factor in factors
        ),
        correlation=0.0,
        places=(),
    )
    before = made_up_profile([RELU, ADD], "measured")
    halves = []
    for profile in (before, before.changed(step_costs=(costs,))):
        after, _ = refine_profile(profile, STEPS, executions(), PROVENANCE)
        cost = cost_of(after, RELU).in_context
        assert cost is not None
        assert cost.energy_j is not None
        halves.append(cost.energy_j.high / cost.energy_j.median - 1)
    assert halves[1] > math.hypot(halves[0], 0.1)


def test_without_step_energies_an_operation_keeps_its_power_in_isolation() -> None:
    before, after = refined("measured", steps=[measured(2e-3, 1e-3, 4e-3)] * 10)
    cost, alone = cost_of(after, RELU).in_context, cost_of(before, RELU).cold
    assert cost is not None
    assert cost.energy_j is not None
    assert alone.energy_j is not None
    assert cost.power == "in isolation"
    power_w = alone.energy_j.median / alone.time_s.median
    assert cost.energy_j.median == pytest.approx(3e-3 * power_w)


def test_an_estimated_energy_stays_nominal_power_times_time() -> None:
    _, after = refined("estimated", 3.0)
    cost = cost_of(after, RELU).in_context
    assert cost is not None
    assert cost.energy_j is not None
    assert cost.power == "nominal"
    assert cost.energy_j.median == pytest.approx(3e-3 * 3.0)
    assert "nominal power" in after.notes[-1]


def test_a_profile_without_energies_is_refined_without_energies() -> None:
    _, after = refined("estimated", None)
    cost = cost_of(after, RELU).in_context
    assert cost is not None
    assert (cost.power, cost.energy_j) == (None, None)


def test_a_refined_profile_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    _, after = refined()
    (tmp_path / "bench.yaml").write_text(dump_yaml(after))
    assert read_yaml(tmp_path / "bench.yaml", DeviceProfile) == after


def test_operations_with_predicted_costs_are_listed_apart() -> None:
    profile = made_up_profile([RELU])
    costs_s = {RELU.key: cost_of(profile, RELU).cold.time_s.median, ADD.key: 1.0}
    known = refinable(profile, costs_s, (RELU.key, ADD.key), "run/graph.json")
    assert known == ((RELU.key,), (ADD.key,))


def test_operations_that_were_measured_but_not_watched_can_be_refined() -> None:
    """The graph of a step with codecs, from a profile that has watched the step without them."""
    step, with_codecs = (build_model("digits", 8, "sgd", codecs=codecs) for codecs in (False, True))
    isolated = made_up_profile(list(specs_in_all_forms(step)))
    cold_s = {each.op: each.cold.time_s.median for each in isolated.operations}
    watched = WatchedSitting(
        schedule="unscheduled",
        steps=3,
        measured=PROVENANCE.measured,
        op_s={op: 0.7 * cold_s[key] for op, key in step.cost_keys.items()},
    )
    network = profiled_network("digits", step)
    costs = step_costs(isolated, network, step.cost_keys, [watched] * FEWEST_SITTINGS)
    profile = with_step_costs(isolated, costs)
    costs_s = {op.cost_key: op.time_s for op in cost_graph(with_codecs, profile).graph.ops}
    keys = tuple(key for key in costs_s if key is not None)
    assert set(keys) - {place.key for place in costs.places}
    known_s = {key: costs_s[key] for key in keys}
    assert refinable(profile, known_s, keys, "run/graph.json") == (keys, ())


def test_the_cost_before_is_the_one_that_graphs_take() -> None:
    """Here one that is carried over into a step, since only other operations were watched."""
    watched = [OpSpec.of("relu.forward", elements=64 * n) for n in range(2, 10)]
    isolated = made_up_profile([RELU, ADD, *watched])
    places = [
        PlaceCost(
            op=f"op{number}",
            key=spec.key,
            time_s=cost_of(isolated, spec).cold.time_s.scaled(0.5),
            sittings_s=(1.0,),
            code_lost=0.0,
        )
        for number, spec in enumerate(watched)
    ]
    costs = StepCosts(
        network=ProfiledNetwork(model="chain", batch=1, optimizer="sgd"),
        sittings=(Sitting(schedule="unscheduled", steps=3, measured=PROVENANCE.measured),),
        correlation=0.2,
        places=tuple(places),
    )
    before = isolated.changed(step_costs=(costs,))
    _, (found,) = refine_profile(before, STEPS, executions(), PROVENANCE)
    kept, lost = (
        CostModel(before).carried_over(RELU, Situation(share, code_lost=share))
        for share in (0.0, 1.0)
    )
    assert kept is not None
    assert lost is not None
    assert found.before.time_s == kept.time_s
    assert found.before.trials == cost_of(before, RELU).cold.trials
    # The run's graph has a cost between, which depends on what the caches have lost there.
    kept_s, lost_s = kept.time_s.median, lost.time_s.median
    for known_s in (kept_s, 0.5 * (kept_s + lost_s), lost_s):
        known = refinable(before, {RELU.key: known_s}, (RELU.key,), "run/graph.json")
        assert known == ((RELU.key,), ())
    for known_s in (0.9 * kept_s, 1.1 * lost_s):
        with pytest.raises(DocumentError, match="Solve and run again"):
            refinable(before, {RELU.key: known_s}, (RELU.key,), "run/graph.json")


def test_a_profile_that_has_changed_since_the_run_is_refused() -> None:
    before, after = refined()
    costs_s = {RELU.key: cost_of(before, RELU).cold.time_s.median}
    with pytest.raises(DocumentError, match=r"run/graph.json: relu.forward .* Solve and run again"):
        refinable(after, costs_s, (RELU.key,), "run/graph.json")


# --- the command --------------------------------------------------------------------------------


DEVICE = describe(
    nominal_power_w=3.0,
    toolchain={"kind": "native", "compiler": "cc", "flags": ["-O0"], "matmul": "in-tree"},
)


@dataclass(frozen=True)
class Bench:
    """A device, its profile, and a run of a schedule that was solved with that profile.

    The profile's cost of the operation ``wrong`` differs from the cost in the run.
    """

    device: Path
    profile: Path
    run: Path
    wrong: str

    @classmethod
    def written(
        cls,
        directory: Path,
        profile: DeviceProfile,
        graph: CostedGraph,
        schedule: Schedule,
        report: ReplayReport,
        wrong: str,
    ) -> Bench:
        run = directory / "results" / "replays" / "digits"
        run.mkdir(parents=True)
        for name, document in (("replay", report), ("schedule", schedule), ("graph", graph)):
            write_json(run / f"{name}.json", document)
        device = directory / "bench.yaml"
        device.write_text(dump_yaml(DEVICE))
        written = directory / "results" / "profiles" / "bench.yaml"
        written.parent.mkdir()
        written.write_text(dump_yaml(profile))
        return cls(device, written, run, wrong)

    def refine(self, *options: str) -> int:
        return cli.main(
            ["profile", "--device", str(self.device), "--refine", str(self.run), *options]
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """Maker of a run in which the most expensive operation takes ``factor`` times as long."""

    def make(factor: float = 3.0, *, without: int = 0, **stated: object) -> Bench:
        step = build_model("digits", 2)
        specs = step.distinct_specs
        profile = made_up_profile(list(specs[without:]))
        graph = cost_graph(step, profile).graph
        assert graph.origin is not None
        graph = graph.model_copy(update={"origin": graph.origin.model_copy(update=stated)})
        kept = replay(graph, keep_everything(graph)).peak_bytes
        schedule = solve_graph(graph, Budget(ram_bytes=kept), SolverOptions(time_limit_s=10))
        expected = expected_step(graph, schedule)
        took_s: dict[str, float] = {}
        for action in expected.actions:
            took_s[action.cost_key] = took_s.get(action.cost_key, 0.0) + action.time_s.median
        slow = specs[0].key if without else max(took_s, key=lambda key: took_s[key])
        step_done = measured_step(
            expected, factor=lambda action: factor if action.cost_key == slow else 1.0
        )
        report = report_of(graph, schedule, [step_done])
        monkeypatch.chdir(tmp_path)
        return Bench.written(tmp_path, profile, graph, schedule, report, slow)

    return make


@pytest.fixture
def no_board(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler.opening.boards.open_transport", pytest.fail)


@pytest.mark.usefixtures("no_board")
def test_a_run_that_went_as_predicted_changes_nothing(
    bench: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    made = bench(factor=1.0)
    before = made.profile.read_bytes()
    assert made.refine() == 0
    assert "no operation is responsible; nothing is measured again" in capsys.readouterr().out
    assert made.refine("--json") == 0
    assert json.loads(capsys.readouterr().out)["refined"] == []
    assert made.profile.read_bytes() == before


@pytest.mark.usefixtures("no_board")
def test_a_dry_run_names_the_operations_and_reaches_no_board(
    bench: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    made = bench()
    before = made.profile.read_bytes()
    assert made.refine("--dry-run", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["operations"] == [made.wrong]
    assert document["profile"] == "results/profiles/bench.yaml"
    assert document["never_measured"] == []
    assert made.profile.read_bytes() == before


@pytest.mark.usefixtures("no_board")
def test_an_operation_with_a_predicted_cost_must_be_measured_in_isolation_first(
    bench: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    made = bench(factor=1000.0, without=1)
    assert made.refine() == 0
    said = capsys.readouterr().err
    assert f"predicted from other operations and never measured: {made.wrong}. Measure" in said
    assert f"profile --device {made.device} --model digits --batch 2 --optimizer sgd" in said


@pytest.mark.usefixtures("no_board")
def test_the_command_that_measures_it_states_how_the_network_is_trained(
    bench: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    stated = {"loss": "mse", "train": ("head", "bias"), "lora": "4:*.fc"}
    made = bench(factor=1000.0, without=1, **stated)
    assert made.refine() == 0
    words = "--loss mse --train head --train bias --lora '4:*.fc'"
    assert f"--optimizer sgd {words}" in capsys.readouterr().err


@pytest.mark.usefixtures("no_board")
def test_the_run_of_another_board_is_refused(
    bench: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    made = bench()
    made.device.write_text(dump_yaml(describe(name="other")))
    assert made.refine() == 2
    assert (
        "this run is from 'bench', not 'other'; refine it with the description of 'bench'"
        in capsys.readouterr().err
    )


def test_run_prints_the_command_with_the_file_that_describes_the_board(
    bench: Callable[..., Bench],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = bench()
    report = read_json(made.run / "replay.json", ReplayReport)
    replayed = SimpleNamespace(timed=SimpleNamespace(values={}))
    monkeypatch.setattr("replay.runs.replay_schedule", lambda *_: replayed)
    monkeypatch.setattr("replay.run_report.run_report", lambda *_: report)
    monkeypatch.setattr("plots.replay.pictures.draw_replay", lambda *_: ())
    words = ("run", "--device", "./bench.yaml", "--schedule", str(made.run / "schedule.json"))
    assert cli.main([*words, "--graph", str(made.run / "graph.json"), "--out", "again"]) == 0
    assert (
        "cli.py profile --device ./bench.yaml --refine again measures this operation again"
        in capsys.readouterr().out
    )


@pytest.mark.usefixtures("no_board")
def test_a_profile_that_another_program_is_going_to_write_is_refused(
    bench: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    made = bench()
    with sole_writer(made.profile):
        assert made.refine() == 2
    said = capsys.readouterr().err
    assert "bench.yaml: another program is going to write this file: process" in said


OTHER_BUILD = Build(kernels_sha256="1" * 64, compiler="cc", flags=(), matmul="in-tree", threads=1)


@pytest.mark.usefixtures("no_board")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"energy_source": "published"}, "states energy_source estimated; profile 'bench' has"),
        ({"name": "other"}, "states profile bench; profile 'other' has other"),
        ({"build": OTHER_BUILD}, "states kernels none; profile 'bench' has 111111111111"),
    ],
)
def test_a_profile_that_the_graph_is_not_from_is_refused(
    bench: Callable[..., Bench],
    changes: dict[str, object],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = bench()
    profile = read_yaml(made.profile, DeviceProfile)
    made.profile.write_text(dump_yaml(profile.model_copy(update=changes)))
    assert made.refine() == 2
    error = capsys.readouterr().err
    assert said in error
    assert "the graph is from another version of this profile" in error


@pytest.mark.usefixtures("no_board")
def test_options_of_a_full_profile_are_refused_with_refine(
    bench: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    made = bench()
    with pytest.raises(SystemExit) as refusal:
        made.refine("--blocks", "3", "--model", "digits")
    assert refusal.value.code == 2
    assert "--model, --blocks cannot be used with --refine" in capsys.readouterr().err


def test_the_error_names_a_missing_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "nothing"
    assert cli.main(["profile", "--device", "local", "--refine", str(missing)]) == 2
    assert f"{missing}/replay.json: cannot be read" in capsys.readouterr().err


@pytest.mark.usefixtures("no_board")
def test_every_step_that_measures_again_has_a_batch_of_its_own(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one batch, the network learns it by heart; the run's own data confirm nothing."""
    made = bench()
    run = StoredRun.read(made.run)
    step = build_model("digits", 2)
    profile = read_yaml(made.profile, DeviceProfile).changed(build=OTHER_BUILD)
    used: list[Mapping[str, Any]] = [
        generated_batches(step, 16, 0).batch(number) for number in range(8)
    ]

    class Session:
        facts = SimpleNamespace(identity=profile.board)
        energy_source = None

        def __init__(self, plans: list[ExecutionPlan]) -> None:
            self.plans = plans

        def run(
            self, index: int, _initial: object, batches: list[Any], *, steps: int, **_: Any
        ) -> SimpleNamespace:
            assert len(batches) == steps
            used.extend(batches)
            count = len(self.plans[index].actions)
            took = [measured(*[1e-3 * (1 + number % 7)] * count) for number in range(steps)]
            return SimpleNamespace(quiet_steps=took)

    @contextmanager
    def opened(
        _device: object, specs: Sequence[OpSpec], make_plans: MakePlans, *_: Any, **__: Any
    ) -> Iterator[Session]:
        yield Session(make_plans(dict.fromkeys(specs, 0)))

    monkeypatch.setattr("replay.running.opening.open_replay", opened)
    measure_again(DEVICE, run, profile, [made.wrong], lambda _: None)
    samples = {b"".join(values.tobytes() for values in batch.values()) for batch in used}
    assert len(samples) == len(used) == 8 + MOST_STEPS


# --- on a board ---------------------------------------------------------------------------------


def law_s(spec: OpSpec) -> float:
    """Time of an operation: a microsecond, and a nanosecond for each FLOP."""
    return 1e-6 + 1e-9 * spec.work_flop


# What the steps of a run take, in turn, as a multiple of the law.
SCATTER = (1.0, 1.004, 0.997, 1.002, 0.996)


class OnLawfulClock(ReplaySession):
    """A session on this computer whose clock runs as operations take their time by the law.

    What a measurement reveals is then the same however busy the computer is.
    """

    def run(self, *arguments: Any, **options: Any) -> ReplayRecord:
        record = super().run(*arguments, **options)
        steps = tuple(
            _timed_by_law(record.plan, step, SCATTER[number % len(SCATTER)])
            for number, step in enumerate(record.steps)
        )
        elapsed_s = tuple(step.time_s for step in steps)
        return replace(record, steps=steps, elapsed_s=elapsed_s, disturbed={})


def _timed_by_law(plan: ExecutionPlan, step: MeasuredStep, scatter: float) -> MeasuredStep:
    spans: list[Span] = []
    now_s = 0.0
    for action, _ in zip((*plan.actions, *plan.afterwards), step.spans, strict=True):
        spec = action.does.spec if isinstance(action.does, Compute) else None
        time_s = scatter * (1e-6 if spec is None else law_s(spec))
        spans.append(Span(now_s, time_s))
        now_s += time_s
    return replace(step, time_s=now_s, energy_j=3.0 * now_s, spans=tuple(spans))


def hand_made(
    workspace_bytes: Mapping[OpSpec, int],
    time_s: Callable[[OpSpec], Interval],
    **of_board: Any,
) -> DeviceProfile:
    """A profile with equal warm and cold costs."""

    def cost(spec: OpSpec) -> Cost:
        return Cost(time_s=time_s(spec), energy_j=time_s(spec).scaled(3.0), trials=5)

    return DeviceProfile(
        name="bench",
        energy_source="estimated",
        operations=tuple(
            OperationCost(op=spec.key, workspace_bytes=size, warm=cost(spec), cold=cost(spec))
            for spec, size in workspace_bytes.items()
        ),
        **of_board,
    )


def scheduled(step: TrainingStep, profile: DeviceProfile) -> tuple[CostedGraph, Schedule]:
    """Graph and schedule at 80 % of the peak, so that an operation is recomputed."""
    graph = cost_graph(step, profile).graph
    kept = replay(graph, keep_everything(graph)).peak_bytes
    budget = Budget(ram_bytes=int(0.8 * kept))
    return graph, solve_graph(graph, budget, SolverOptions(gap=0.5))


@dataclass(frozen=True)
class OnBoard:
    """An open board with a plan, and the steps that it has measured."""

    session: ReplaySession
    schedule: Schedule
    workspace_bytes: Mapping[OpSpec, int]
    measured: MeasuredReplay

    @property
    def step(self) -> TrainingStep:
        return build_model("digits", 2)

    def profile(self, time_s: Callable[[OpSpec], Interval]) -> DeviceProfile:
        board, build = self.session.facts.identity, self.session.build
        return hand_made(self.workspace_bytes, time_s, board=board, build=build)

    @contextmanager
    def opened(
        self,
        _description: DeviceDescription,
        specs: Sequence[OpSpec],
        make_plans: MakePlans,
        _progress: Progress,
        *,
        kernels_sha256: str,
        matmul: str,
    ) -> Iterator[ReplaySession]:
        """Stand-in for ``open_replay`` that yields the open session, to save compiling."""
        assert kernels_sha256 == self.session.build.kernels_sha256
        assert matmul == self.session.build.matmul
        assert (
            make_plans({spec: self.workspace_bytes[spec] for spec in specs}) == self.session.plans
        )
        yield self.session

    def run_with_a_wrong_profile(self, directory: Path) -> Bench:
        """Write profile and report from one real run, with a wrong cost of the dearest operation.

        Since both come from the same run, they differ in nothing else.
        """
        plan, step = self.session.plans[0], self.step
        equal = self.profile(lambda _: Interval.exact(1.0))
        actions = expected_step(cost_graph(step, equal).graph, self.schedule).actions
        keys = [spec.key for spec in step.distinct_specs]
        found = Executions.of(ScheduledActions.of(plan, actions), actions, keys)
        true_s = {key: found.time_s(key, self.measured.steps) for key in keys}
        dearest = max(keys, key=lambda key: len(found.of_key[key]) * true_s[key].median)
        wrong = self.profile(
            lambda spec: true_s[spec.key].scaled(3.0 if spec.key == dearest else 1.0)
        )
        graph = cost_graph(step, wrong).graph
        assert graph.origin is not None
        report = replay_report(
            ReportHead("bench", "digits.json", graph.origin.model_dump(), DEVICE.storage),
            expected_step(graph, self.schedule),
            plan,
            self.measured,
            (),
            steps_per_day=1000,
        )
        schedule = restated(graph, self.schedule)
        return Bench.written(directory, wrong, graph, schedule, report, dearest)


@pytest.fixture(scope="module")
def on_board() -> Iterator[OnBoard]:
    """A board with a plan from assumed costs, since nothing is measured yet, and its run."""
    step = build_model("digits", 2)
    workspace_bytes: dict[OpSpec, int] = {}
    schedules: list[Schedule] = []

    def make_plans(needed: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
        workspace_bytes.update(needed)
        guess = hand_made(
            needed,
            lambda spec: Interval.exact(law_s(spec)),
            board=BoardIdentity(model="", memory_bytes=1),
        )
        graph, schedule = scheduled(step, guess)
        schedules.append(schedule)
        return [lower(step, graph, schedule, needed)]

    with open_replay(DEVICE, step.distinct_specs, make_plans, lambda _: None) as opened:
        session = OnLawfulClock(
            **{each.name: getattr(opened, each.name) for each in fields(opened) if each.init}
        )
        record = session.run(
            0,
            initial_values(step, 0),
            [generated_batches(step, step.batch, 0).batch(0)],
            steps=20,
            watched=True,
            expected_step_s=1e-3,
        )
        yield OnBoard(session, schedules[0], workspace_bytes, session.measured(record))


@pytest.mark.slow
def test_refining_a_wrong_cost_improves_the_prediction(
    on_board: OnBoard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = on_board.run_with_a_wrong_profile(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("replay.running.opening.open_replay", on_board.opened)
    report = read_json(made.run / "replay.json", ReplayReport)
    assert report.diagnosis.refine == (made.wrong,)
    before = read_yaml(made.profile, DeviceProfile)
    assert made.refine() == 0
    shown = capsys.readouterr().out
    assert re.search(rf"{re.escape(short_key(made.wrong))} +[\d.]+ .s +[\d.]+ .s +±", shown)
    assert "solve again with --profile results/profiles/bench.yaml" in shown
    after = read_yaml(made.profile, DeviceProfile)
    assert [operation.op for operation in after.refined] == [made.wrong]
    (refined,) = after.refined
    assert refined.cold == before.by_spec[OpSpec.parse(made.wrong)].cold
    assert refined.in_context is not None
    assert refined.in_context.run == str(made.run)

    measured_s = report.time_s.measured.median
    off_s = [
        abs(
            expected_step(cost_graph(on_board.step, profile).graph, on_board.schedule).time_s.median
            - measured_s
        )
        for profile in (before, after)
    ]
    assert off_s[1] < off_s[0]

    assert made.refine() == 2
    assert "the profile was measured or refined after that run" in capsys.readouterr().err


@pytest.mark.slow
def test_an_interrupted_refinement_leaves_the_profile_unchanged(
    on_board: OnBoard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = on_board.run_with_a_wrong_profile(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("replay.running.opening.open_replay", on_board.opened)
    before = made.profile.read_bytes()

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ReplaySession, "run", interrupt)
    assert made.refine() == 130
    assert capsys.readouterr().err.endswith("interrupted\n")
    assert made.profile.read_bytes() == before


@pytest.mark.slow
def test_another_board_is_refused(
    on_board: OnBoard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = on_board.run_with_a_wrong_profile(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("replay.running.opening.open_replay", on_board.opened)
    profile = read_yaml(made.profile, DeviceProfile)
    other = profile.board.model_copy(update={"cpu": "another"})
    made.profile.write_text(dump_yaml(profile.model_copy(update={"board": other})))
    assert made.refine() == 2
    assert "is of a board whose cpu is 'another'" in capsys.readouterr().err

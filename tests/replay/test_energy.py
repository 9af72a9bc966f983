"""Energies of activities in readings that mix them, against powers that are known."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.activity_energies import (
    METERS,
    OUTSIDE_W,
    Board,
    main,
    outcomes,
    separated,
    streamed,
)
from commands.console import Console
from commands.run.summary import summarise
from devices.plan import ExecutionPlan
from devices.profile import Interval
from devices.replay import ActivityEnergies, ActivityEnergy, MeasuredStep, ReplayReport
from profiler.boards.plan_data import NO_DATA
from profiler.meters.readings import Readings, Response
from replay.energy.activities import Tile, stacked, usable_readings
from replay.energy.regression import NotSeparable, separate
from replay.expectation import expected_step
from replay.reporting.figures import remade_report
from replay.run_report import run_report
from replay.running.measured import ReplayRecord, replay_record
from replay.running.records import parse_replay
from replay.running.script import Script
from replay.runs import Replayed, Training
from tests.support.onboard.replays import (
    SD_CARD,
    measured_replay,
    measured_step,
    paged_chain,
    plan_of,
    report_of,
)


def test_the_benchmark_explains_itself_without_running(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.activity_energies.outcomes", Mock(side_effect=AssertionError))
    monkeypatch.setattr("sys.argv", ["activity_energies", "--help"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "how often the intervals" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("meter", METERS)
def test_intervals_of_energies_hold_the_true_ones_as_often_as_stated(meter: str) -> None:
    """In 100 cases there are about 450 energies; those of one case err together."""
    found = outcomes(meter, cases=100, seed=8)
    assert len(found) > 300
    assert 0.92 <= np.mean([each.is_held for each in found]) <= 0.985


TWO = {"convolution": 3.0, "update": 1.5}


def test_activities_that_always_share_a_reading_are_given_together() -> None:
    """Twenty pairs of 50 µs each fill a step, and a reading remembers 18 ms of them."""
    short = (("convolution", 50e-6), ("update", 50e-6))
    board = Board((*short * 20, ("long", 0.03)), TWO | {"long": 4.0}, steps=60)
    found = separated(board, "held", np.random.default_rng(3))
    together = next(group for group in found.groups if "update" in group.activities)
    assert "convolution" in together.activities
    assert "long" not in together.activities
    true_j = sum(map(board.energy_j, together.activities))
    assert together.energy_j == pytest.approx(true_j, abs=1.5 * together.half_j)
    assert found.condition <= 30


@pytest.mark.parametrize("meter", METERS)
def test_an_activity_of_a_single_step_is_given_with_another(meter: str) -> None:
    """Without the block of that step, nothing is known of its power."""
    random = np.random.default_rng(3)
    made, spent_j = Board((("convolution", 0.05), ("update", 0.05)), TWO, 60).run(random)
    steps = [list(tiles) for tiles in made]
    update = steps[30].pop()
    middle_s = (update.start_s + update.end_s) / 2
    steps[30] += [Tile("update", update.start_s, middle_s), Tile("wait", middle_s, update.end_s)]
    found = METERS[meter](spent_j, steps[0][0].start_s, steps[-1][-1].end_s, random)
    assert found.response is not None
    groups = separate(found, found.response, stacked(steps, range(60), found.response)).groups
    (waited,) = (group for group in groups if "wait" in group.activities)
    assert len(waited.activities) == 2
    assert OUTSIDE_W < waited.power_w < 1.01 * TWO["update"]
    for group in groups:
        if group != waited:
            true_w = TWO.get(group.activities[0], OUTSIDE_W)
            assert group.power_w == pytest.approx(true_w, rel=0.05)
            assert group.half_w < 0.1


@pytest.mark.parametrize("meter", METERS)
def test_time_between_two_steps_only_has_no_power_of_its_own(meter: str) -> None:
    """Other steps were disturbed, so that no others follow one another."""
    random = np.random.default_rng(2)
    made, spent_j = Board((("update", 0.2),), TWO, 40).run(random)
    found = METERS[meter](spent_j, made[0][0].start_s, made[-1][-1].end_s, random)
    numbers = [*range(0, 40, 2), 39]
    assert found.response is not None
    spans = stacked([made[number] for number in numbers], numbers, found.response)
    (both,) = separate(found, found.response, spans).groups
    assert set(both.activities) == {"update", "outside"}
    assert both.power_w == pytest.approx(1.5, rel=0.05)
    assert both.half_w < 0.1


def test_activities_that_one_block_alone_tells_apart_are_not_separable() -> None:
    """In all other steps, each of them has half of every reading, to the last bit."""
    half_s = 2.0**-10
    steps = []
    for number in range(64):
        halves = ["one", "other"] * 8 if number != 20 else ["one", "one", "other", "other"] * 4
        edges_s = 1.0 + half_s * (16 * number + np.arange(17))
        steps.append([Tile(*each) for each in zip(halves, edges_s[:-1], edges_s[1:], strict=True)])
    times_s = 1.0 + 2 * half_s * np.arange(1, 8 * 64)
    power_w = 2.0 + 0.01 * np.random.default_rng(0).normal(size=len(times_s))
    response = Response(2 * half_s)
    found = Readings(0, times_s, power_w, np.ones(len(times_s), dtype=bool), response)
    with pytest.raises(NotSeparable, match="in one block of steps: raise --steps"):
        separate(found, response, stacked(steps, range(64), response))


def test_a_step_that_is_shorter_than_a_reading_has_one_power() -> None:
    board = Board((("convolution", 100e-6), ("update", 100e-6)), TWO, steps=2000)
    found = separated(board, "held", np.random.default_rng(4))
    together = next(group for group in found.groups if "update" in group.activities)
    assert "convolution" in together.activities
    assert together.energy_j == pytest.approx(together.power_w * together.time_s)


def test_too_few_or_too_short_steps_are_named() -> None:
    board = Board((("convolution", 0.02),), TWO, steps=10)
    with pytest.raises(
        NotSeparable, match=r"10 steps took 0.2\d s together, .* needs 0.56 s: raise"
    ):
        separated(board, "held", np.random.default_rng(5))
    with pytest.raises(NotSeparable, match="4 steps were undisturbed, 8 are needed"):
        separated(replace(board, steps=4), "held", np.random.default_rng(5))


def test_readings_of_negative_power_are_refused() -> None:
    """The inputs of the sensor are exchanged; one reading was lost."""
    power_w = np.array([-2.0, np.nan, -2.5])
    readings = Readings(0, np.arange(3.0), power_w, ~np.isnan(power_w), Response.centred(1.0))
    with pytest.raises(NotSeparable, match="negative power"):
        usable_readings(Mock(readings=readings))


def test_a_clock_that_is_worse_than_stated_or_than_the_readings_is_refused() -> None:
    board = Board((("convolution", 0.02), ("update", 0.02)), TWO, 40)
    steps, spent_j = board.run(random := np.random.default_rng(6))
    found = streamed(spent_j, steps[0][0].start_s, steps[-1][-1].end_s, random)
    assert found.response is not None
    spans = stacked(steps, range(40), found.response)
    with pytest.raises(NotSeparable, match=r"clock is known to 5 ms only, .* remember 1 ms"):
        separate(replace(found, clock_error_s=5e-3), found.response, spans)
    off = replace(found, times_s=found.times_s + 4e-3)
    with pytest.raises(NotSeparable, match=r"only if the meter's clock is off by -\d"):
        separate(off, found.response, spans)


def test_readings_that_were_lost_do_not_count_unless_they_are_many() -> None:
    steps, spent_j = Board((("convolution", 0.02),), TWO, 40).run(
        random := np.random.default_rng(6)
    )
    found = streamed(spent_j, steps[0][0].start_s, steps[-1][-1].end_s, random)
    assert found.response is not None
    spans = stacked(steps, range(40), found.response)

    def without(share: float) -> Readings:
        lost = random.random(len(found.times_s)) < share
        return replace(found, power_w=np.where(lost, np.nan, found.power_w), sound=~lost)

    few = separate(without(0.005), found.response, spans)
    assert next(g for g in few.groups if g.activities == ("convolution",)).power_w == pytest.approx(
        3.0, rel=0.01
    )
    with pytest.raises(NotSeparable, match="of the readings were lost"):
        separate(without(0.1), found.response, spans)


# --- in a report ----------------------------------------------------------------------------------


def energies(key: str) -> ActivityEnergies:
    power_w = Interval(median=3.0, low=2.5, high=3.5)
    both = ActivityEnergy(
        activities=(key, "between"), time_s=2e-3, power_w=power_w, energy_j=power_w.scaled(2e-3)
    )
    return ActivityEnergies(
        energy_source="measured",
        steps=20,
        blocks=20,
        readings=500,
        shift_s=1e-4,
        condition=3.0,
        activities=(both,),
    )


def test_run_prints_activities_with_their_source_and_what_was_not_told_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph, schedule = paged_chain()
    report = report_of(graph, schedule)
    first = report.actions[0]
    key = first.cost_key
    summarise(Console(), report.model_copy(update={"activity_energies": energies(key)}))
    printed = capsys.readouterr().out
    assert "energy a step (measured)" in printed
    others = {action.label for action in report.actions if action.cost_key == key} - {first.label}
    assert f"{first.label} + {len(others) + 1} more" in printed
    assert "6 mJ (5 mJ to 7 mJ)" in printed


def test_an_energy_that_is_not_the_product_of_power_and_time_is_found() -> None:
    graph, schedule = paged_chain()
    report = report_of(
        graph, schedule, [measured_step(expected_step(graph, schedule), power_w=3.0)]
    )
    found = energies(report.actions[0].cost_key)
    (right,) = found.activities
    wrong = right.model_copy(update={"time_s": 2 * right.time_s})

    def sentences(given: ActivityEnergies) -> list[str]:
        stated = report.model_copy(update={"activity_energies": given})
        return [s for s in remade_report(stated, graph, schedule)[1] if "activity" in s]

    assert sentences(found) == []
    sentence, *_ = sentences(found.model_copy(update={"activities": (wrong,)}))
    assert "states activity_energies.activities[0].energy_j.median 0.006" in sentence


def test_the_age_of_power_in_a_reading_adds_up_to_the_whole() -> None:
    """The share is 0 at the age of the newest power, and 1 at that of the oldest."""
    for response in (Response.held(0.01), Response.centred(0.01), Response.low_pass(50.0)):
        ages_s = np.linspace(response.youngest_s, response.oldest_s, 101)
        shares = response.reached(ages_s)
        assert shares[0] == 0.0
        assert shares[-1] == pytest.approx(1.0, abs=1e-3)
        assert (np.diff(shares) >= -1e-12).all()


def test_a_meter_that_does_not_say_what_a_reading_is_has_no_energies_of_operations() -> None:
    times_s = np.arange(10) / 10
    silent = Readings(0, times_s, times_s, np.ones(10, dtype=bool), response=None)
    run = replay_record(
        ExecutionPlan("nothing", 64, {}, (), ()),
        Script("", NO_DATA, (), ()),
        parse_replay(""),
        b"",
        None,
        throttled=None,
        is_measured=False,
    )
    for readings, reason in ((silent, "add integration_s to it"), (None, "has no meter")):
        with pytest.raises(NotSeparable, match=reason):
            usable_readings(replace(run, readings=readings))


# --- a step ---------------------------------------------------------------------------------------

POWER_W, SHORT_S, LONG_S, BETWEEN_S = 3.0, 0.085, 0.150, 1e-3


def quiet_run(
    plan: ExecutionPlan, steps: list[MeasuredStep], readings: Readings | None = None
) -> ReplayRecord:
    """A run of undisturbed steps, a millisecond after each other."""
    ends_s = np.cumsum([step.time_s + BETWEEN_S for step in steps])
    windows_ns = tuple(
        (round((end_s - BETWEEN_S - step.time_s) * 1e9), round((end_s - BETWEEN_S) * 1e9))
        for end_s, step in zip(ends_s.tolist(), steps, strict=True)
    )
    return ReplayRecord(
        plan=plan,
        steps=tuple(steps),
        elapsed_s=tuple(step.time_s for step in steps),
        disturbed={},
        unmetered={},
        counters=None,
        memory=None,
        power=None,
        losses=(),
        values={},
        readings=readings,
        windows_ns=windows_ns,
    )


def run_of_short_steps(metered: int, response: Response | None) -> ReplayReport:
    """Report of 19 steps of 85 ms and one of 150 ms; the last ``metered`` have an energy."""
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)
    plan = plan_of(problem, expected)
    steps = [
        MeasuredStep(time_s, POWER_W * time_s if number >= 20 - metered else None)
        for number, time_s in enumerate([SHORT_S] * 19 + [LONG_S])
    ]
    times_s = np.arange(0.0, 1.8, 0.01)
    power_w = POWER_W + 1e-3 * np.random.default_rng(0).standard_normal(len(times_s))
    readings = Readings(0, times_s, power_w, np.ones(len(times_s), dtype=bool), response)
    watched = [measured_step(expected)]
    replayed = Replayed(
        plan=plan,
        gradients={},
        measured=measured_replay(plan, expected, [*steps, *watched]),
        timed=quiet_run(plan, steps, readings),
        watched=quiet_run(plan, watched),
        unscheduled=None,
        checks=(),
        notes=(),
    )
    subject = Mock(graph=problem)
    subject.description.name = "bench"
    subject.description.storage = SD_CARD
    training = Training(Mock(), len(steps), seed=0)
    return run_report(subject, "made-up.json", replayed, expected, training, 1000.0)


@pytest.mark.parametrize("metered", [0, 1, 17])
def test_the_energy_of_steps_together_stands_for_steps_without_one(metered: int) -> None:
    found = run_of_short_steps(metered, Response.centred(8.8e-3))
    assert found.energy_j is not None
    mean_s = (19 * SHORT_S + LONG_S) / 20
    assert found.energy_j.measured.median == pytest.approx(POWER_W * mean_s, rel=0.02)
    assert found.energy_steps == 20
    assert any(
        f"20 steps together: {20 - metered} of 20 steps have none" in s for s in found.limits
    )


def test_the_longest_steps_do_not_stand_for_all() -> None:
    """The meter's description does not say what a reading is a mean of."""
    found = run_of_short_steps(1, None)
    assert found.energy_j is not None
    assert found.energy_j.measured.median == pytest.approx(POWER_W * SHORT_S)
    assert found.energy_steps is None
    assert any("that of the 1 of 20 steps that have one, scaled" in s for s in found.limits)


@pytest.mark.parametrize("metered", [18, 20])
def test_steps_that_have_an_energy_of_their_own_stand_for_few_that_have_none(metered: int) -> None:
    found = run_of_short_steps(metered, Response.centred(8.8e-3))
    assert found.energy_j is not None
    assert found.energy_j.measured.median == pytest.approx(POWER_W * SHORT_S)
    assert found.energy_steps is None
    assert not any("energy of a step" in sentence for sentence in found.limits)

"""Pictures of a replay, and the power samples in them; texts are read from the SVG's comments."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from devices.profile import EnergySource, Interval
from devices.replay import (
    ActivityEnergies,
    ActivityEnergy,
    MeasuredStep,
    PowerSamples,
    ReplayReport,
)
from plots.replay.energies import energies_of_activities
from plots.replay.kinds import Bar, draw_kinds, write_times
from plots.replay.memory import replayed_memory
from plots.replay.power import replayed_power
from plots.replay.style import COLORS
from plots.replay.times import predicted_against_measured
from plots.style import size_text
from profiler.meters.base import PowerTrace, Void
from profiler.meters.capture import Capture
from profiler.meters.nominal import ConstantPower
from profiler.meters.on_host import RecordedPower
from profiler.meters.readings import Readings
from profiler.meters.sync.base import ClockMap
from profiler.meters.trace import EnergyCounter, SampledPower
from replay.expectation import expected_step
from replay.running.power import power_samples
from tests.support.onboard.replays import measured_step, paged_chain, report_of
from tests.support.paths import ROOT
from tests.support.pictures import texts_of

POWER = PowerSamples(
    time_s=(-1.0, 0.0, 10.0, 30.0, 60.0, 61.0),
    power_w=(1.0, 2.0, 3.0, 3.0, 2.0, 1.0),
    step_starts_s=(0.0, 30.0),
    step_times_s=(30.0, 30.0),
)


def slow_report(**changes: object) -> ReplayReport:
    """A report of five steps with joules, in which one op took twice its expected time."""
    problem, schedule = paged_chain()
    expected = expected_step(problem, schedule)

    def step(scatter: float) -> MeasuredStep:
        return measured_step(
            expected,
            factor=lambda action: scatter * (2.0 if action.label == "b4" else 1.0),
            gap_s=0.01,
            power_w=2.0,
        )

    steps = [step(scatter) for scatter in (0.99, 1.0, 1.0, 1.0, 1.01)]
    return report_of(problem, schedule, steps, power=POWER).model_copy(update=changes)


def drawn(picture: str, report: ReplayReport, path: Path) -> str:
    problem, schedule = paged_chain()
    draw: dict[str, Callable[[], None]] = {
        "points": lambda: predicted_against_measured(report, path),
        "memory": lambda: replayed_memory(problem, schedule, report, path),
        "power": lambda: replayed_power(report, path),
        "energies": lambda: energies_of_activities(told_apart(report), path),
    }
    draw[picture]()
    return texts_of(path)


PICTURES = ("points", "memory", "power", "energies")


def told_apart(report: ReplayReport) -> ReplayReport:
    """The report with energies of its first operation and of everything else together."""
    first, *others = dict.fromkeys(action.cost_key for action in report.actions)
    activities = tuple(
        ActivityEnergy(
            activities=together,
            time_s=2e-3,
            power_w=Interval(median=power_w, low=power_w - 0.5, high=power_w + 0.5),
            energy_j=Interval(median=power_w, low=power_w - 0.5, high=power_w + 0.5).scaled(2e-3),
        )
        for together, power_w in (((first,), 3.0), ((*others, "between"), 1.5))
    )
    found = ActivityEnergies(
        energy_source="measured",
        steps=20,
        blocks=20,
        readings=500,
        shift_s=1e-4,
        condition=3.0,
        activities=activities,
    )
    return report.model_copy(update={"activity_energies": found})


def test_energies_of_operations_have_names_and_a_source(tmp_path: Path) -> None:
    report = slow_report()
    text = drawn("energies", report, tmp_path / "p.svg")
    assert "2 activities that the meter could tell apart, from 500 readings of 20 steps" in text
    assert "measured energy" in text
    assert re.search(rf"\n{report.actions[0].label}\b", text)
    assert re.search(r" \+ \d+ more\n", text)
    assert "energy in a step (J)" in text
    with pytest.raises(ValueError, match="no energies of activities"):
        energies_of_activities(report, tmp_path / "none.svg")


# --- predicted against measured -----------------------------------------------------------------


@pytest.mark.slow
def test_op_with_the_largest_difference_is_named_with_its_cost(tmp_path: Path) -> None:
    report = slow_report()
    text = drawn("points", report, tmp_path / "p.svg")
    assert "a chain: predicted against measured" in text
    assert f"{len(report.actions)} actions on bench, medians over 5 steps" in text
    assert "\n1\ntest\nb4\n" in text
    assert "+100 %" in text
    assert "b5" not in text, "an op that took its predicted time is not named"


def test_time_is_summed_by_kind_and_time_between_actions_is_stated(tmp_path: Path) -> None:
    text = drawn("points", slow_report(), tmp_path / "p.svg").splitlines()
    for kind in ("test", "test, recomputed", "page out", "page in", "between actions"):
        assert kind in text


def test_each_time_is_written_at_the_end_of_its_own_bar() -> None:
    axes = Figure(figsize=(8, 3)).add_subplot()
    bars = [Bar("more", 1.0, 2.0), Bar("less", 3.0, 0.5), Bar("not predicted", 0.0, 0.25)]
    draw_kinds(axes, bars)
    write_times(axes, bars)
    drawn_bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    ends = {round(bar.get_y() + bar.get_height() / 2, 6): bar.get_width() for bar in drawn_bars}
    texts = [text for text in axes.texts if isinstance(text, Annotation)]
    written = {round(text.xy[1], 6): text for text in texts}
    assert {place: text.xy[0] for place, text in written.items()} == ends
    assert [written[place].get_text() for place in sorted(written)] == [
        "1.00 s", "2.00 s  +100 %", "3.00 s", "500 ms  −83 %", "", "250 ms",
    ]  # fmt: skip
    assert max(ends.values()) < axes.get_xlim()[1]
    colours = {to_hex(bar.get_facecolor()).upper() for bar in drawn_bars}
    assert len(colours) == 2
    assert not colours & set(COLORS.values())


def test_replay_as_expected_names_no_op(tmp_path: Path) -> None:
    problem, schedule = paged_chain()
    report = report_of(problem, schedule)
    text = drawn("points", report, tmp_path / "p.svg")
    assert "largest differences" not in text
    assert f"{len(report.actions)} in their predicted intervals" in text
    assert "within the 95 % intervals" in text


# --- memory -------------------------------------------------------------------------------------


def test_memory_as_run_stands_below_the_prediction(tmp_path: Path) -> None:
    report = slow_report()
    text = drawn("memory", report, tmp_path / "m.svg")
    assert {"predicted", "as run in watched steps, which time every action"} <= set(
        text.splitlines()
    )
    assert f"arena {size_text(report.memory.arena_bytes)}" in text
    assert "the board used exactly these bytes" in text


def test_difference_in_used_arena_is_stated_in_bytes(tmp_path: Path) -> None:
    report = slow_report()
    arena = report.memory.arena_bytes
    memory = report.memory.model_copy(update={"touched_bytes": arena - 4})
    text = drawn("memory", report.model_copy(update={"memory": memory}), tmp_path / "m.svg")
    assert f"written up to byte {arena - 4} of {arena}" in text


# --- power --------------------------------------------------------------------------------------


def test_power_picture_names_its_meter_and_the_energy_of_a_step(tmp_path: Path) -> None:
    text = drawn("power", slow_report(), tmp_path / "w.svg")
    assert "bench, meter ina, ina226, channel 1, 500 Sa/s" in text
    assert "energy of a step: predicted" in text
    assert {"step 1", "step 2"} <= set(text.splitlines())


def test_without_samples_there_is_no_picture_of_power(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the replay of made-up\.json has no samples of power"):
        replayed_power(slow_report(power=None), tmp_path / "w.svg")
    assert not list(tmp_path.iterdir())


# --- all ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize(
    ("predicted", "measured", "words"),
    [
        ("measured", "measured", "profile and replay: energy measured"),
        ("estimated", "measured", "profile: energy ESTIMATED (nominal power × time), not measured"),
        ("published", "estimated", "replay: energy ESTIMATED"),
        ("emulated", "emulated", "profile and replay: EMULATED board"),
    ],
)
def test_every_picture_states_the_source_of_its_figures(
    tmp_path: Path, picture: str, predicted: EnergySource, measured: EnergySource, words: str
) -> None:
    report = slow_report(predicted_energy_source=predicted, measured_energy_source=measured)
    assert words in drawn(picture, report, tmp_path / "p.svg")


@pytest.mark.slow
@pytest.mark.parametrize("picture", ["points", "memory"])
def test_pictures_of_an_emulated_board_do_not_say_measured(tmp_path: Path, picture: str) -> None:
    report = slow_report(predicted_energy_source="emulated", measured_energy_source="emulated")
    text = drawn(picture, report, tmp_path / "p.svg")
    assert re.search(r"^step: predicted .*, emulated ", text, re.MULTILINE)
    assert "measured" not in text


@pytest.mark.slow
def test_the_same_report_gives_the_same_file(tmp_path: Path) -> None:
    report = slow_report()
    for picture in PICTURES:
        for name in ("one.svg", "two.svg"):
            drawn(picture, report, tmp_path / name)
        assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.slow
def test_pictures_need_no_display_and_the_trace_no_pictures() -> None:
    check = (
        "import sys, plots.perfetto; before = 'matplotlib' in sys.modules;"
        "import plots.replay.times, plots.replay.memory, plots.replay.power;"
        "sys.exit(before or 'matplotlib.pyplot' in sys.modules)"
    )
    root = ROOT
    assert subprocess.run([sys.executable, "-c", check], cwd=root, check=False).returncode == 0


# --- samples of a meter ---------------------------------------------------------------------------

_MS = 1_000_000
STEPS_NS = [(1000 * _MS + 200 * _MS * i, 1000 * _MS + 200 * _MS * i + 190 * _MS) for i in range(9)]


def _times_ns(period_ms: float) -> np.ndarray:
    return np.arange(0, 4000 * _MS, int(period_ms * _MS), dtype=np.int64)


def readings(trace: PowerTrace) -> Readings:
    found = trace.readings()
    assert not isinstance(found, Void)
    return found


def test_two_steps_in_the_middle_are_shown_sample_by_sample() -> None:
    times_ns = _times_ns(2)
    trace = SampledPower(times_ns, times_ns / 1e9, np.zeros(len(times_ns), dtype=bool), 0.002)
    found = power_samples(readings(trace), STEPS_NS)
    assert found is not None
    assert found.step_starts_s == (0.0, 0.2)
    assert found.step_times_s == (0.19, 0.19)
    begin_s = STEPS_NS[3][0] / 1e9
    assert np.allclose(np.array(found.time_s) + begin_s, found.power_w), "power is the time here"
    assert found.time_s[0] < 0 < 0.39 < found.time_s[-1]


def test_a_slow_meter_is_shown_over_more_steps() -> None:
    times_ns = _times_ns(20)
    trace = SampledPower(times_ns, np.ones(len(times_ns)), np.zeros(len(times_ns), bool), 0.02)
    found = power_samples(readings(trace), STEPS_NS)
    assert found is not None
    assert len(found.step_starts_s) > 2
    assert len(found.time_s) >= 40


def test_joule_counter_becomes_power_even_when_it_wraps() -> None:
    times_ns = _times_ns(2)
    trace = EnergyCounter(times_ns, (times_ns / 1e9 * 5.0) % 0.75, range_j=0.75, period_s=0.002)
    found = power_samples(readings(trace), STEPS_NS)
    assert found is not None
    assert np.allclose(found.power_w, 5.0)


def test_a_fast_meter_is_averaged_and_keeps_its_mean() -> None:
    power_w = 2.0 + np.sin(np.arange(400_000) / 50.0)
    capture = Capture(
        start_s=50.0, period_s=1e-5, power_w=power_w, flaws=np.zeros(400_000, np.uint8)
    )
    clock = ClockMap(np.array([0, 4000 * _MS]), np.array([50.0, 54.0]), uncertainty_s=0.0)
    trace = RecordedPower(capture, clock, guard_s=0.0, windows_ns=frozenset())
    found = power_samples(readings(trace), STEPS_NS)
    assert found is not None
    assert 1000 < len(found.time_s) <= 4000
    assert np.mean(found.power_w) == pytest.approx(2.0, abs=0.01)
    assert found.time_s[0] == pytest.approx(-0.05 * 0.39, abs=1e-3)


def test_lost_samples_are_left_out() -> None:
    power_w = np.ones(4000)
    power_w[1500:1800] = np.nan
    capture = Capture(start_s=0.0, period_s=1e-3, power_w=power_w, flaws=np.zeros(4000, np.uint8))
    clock = ClockMap(np.array([0, 4000 * _MS]), np.array([0.0, 4.0]), uncertainty_s=0.0)
    found = power_samples(readings(RecordedPower(capture, clock, 0.0, frozenset())), STEPS_NS)
    assert found is not None
    assert set(found.power_w) == {1.0}


def test_no_power_is_shown_without_samples() -> None:
    assert power_samples(None, STEPS_NS) is None
    assert isinstance(ConstantPower(3.0).readings(), Void)


def test_a_replay_without_steps_has_no_power_to_show() -> None:
    times_ns = _times_ns(2)
    trace = SampledPower(times_ns, np.ones(len(times_ns)), np.zeros(len(times_ns), bool), 0.002)
    assert power_samples(readings(trace), []) is None

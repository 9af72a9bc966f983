"""Meters on the board: sensors found by name, and the energy of a window or why it is void."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from devices.description import DeviceDescription
from devices.errors import MeasurementInvalid
from devices.meters import HwmonMeter
from profiler.boards.posix import PosixBoard
from profiler.building.toolchain import BuiltHarness
from profiler.meters.base import MIN_SAMPLES, BlockRecord, BoardSamples, Meter, PowerTrace, Void
from profiler.meters.capture import Capture
from profiler.meters.least_window import least_window_s
from profiler.meters.on_host import RecordedPower
from profiler.meters.readings import Response
from profiler.meters.sync.base import ClockMap
from profiler.meters.trace import EnergyCounter, SampledPower
from profiler.opening.meters import open_board_meter
from profiler.script.records import parse_results, parse_samples
from profiler.transports.local import LocalTransport
from tests.support.boards.measuring import (
    Signal,
    describe,
    ina226_tree,
    ina3221_tree,
    run_harness,
    write_tree,
)
from tests.support.failures import sentence_of

MS = 1_000_000
NS = 1_000_000_000


def here(description: DeviceDescription) -> PosixBoard:
    return PosixBoard(description, LocalTransport(), poll_interval_s=0.1)


def opened(**meter: Any) -> Meter:
    description = describe(meter=meter)
    with here(description) as board:
        found = open_board_meter(description, board)
    assert found is not None
    return found


def refusal(**meter: Any) -> str:
    return sentence_of(MeasurementInvalid, lambda: opened(**meter))


def samples(*rows: tuple[int, ...]) -> BlockRecord:
    """Samples from rows of (milliseconds, values…)."""
    table = np.array(rows, dtype=np.int64)
    return block(BoardSamples(times_ns=table[:, 0] * MS, values=table[:, 1:]))


def block(taken: BoardSamples) -> BlockRecord:
    return BlockRecord(windows_ns=(), markers_ns=(), samples=taken)


def steadily(*values: int, count: int = 40) -> BlockRecord:
    """Samples with the same values every 10 ms."""
    return samples(*((10 * n, *values) for n in range(count)))


# --- finding the sensor -----------------------------------------------------------------------


def test_an_ina226_is_found_by_its_driver(tmp_path: Path) -> None:
    for number in (1, 7):
        root = ina226_tree(tmp_path / str(number), number=number)
        meter = opened(kind="hwmon", driver="ina226", channel=1, root=root)
        assert meter.sampler is not None
        assert meter.sampler.sources[0] == f"file={root}/hwmon{number}/power1_input"
        assert meter.energy_source == "measured"
        trace = meter.finish(steadily(2_500_000, 500))
        assert trace.energy_j(100 * MS, 300 * MS) == pytest.approx(2.5 * 0.2)


def test_an_ina3221_rail_is_found_by_label_and_is_voltage_times_current(tmp_path: Path) -> None:
    root = ina3221_tree(tmp_path)
    meter = opened(kind="hwmon", driver="ina3221", label="VDD_SOC", root=root)
    assert meter.sampler is not None
    assert meter.sampler.sources == (
        f"file={root}/hwmon1/in3_input",
        f"file={root}/hwmon1/curr3_input",
    )
    trace = meter.finish(steadily(19056, 80))
    assert trace.energy_j(100 * MS, 300 * MS) == pytest.approx(19.056 * 0.080 * 0.2)


def test_a_power_reading_with_a_label_of_its_own_is_found(tmp_path: Path) -> None:
    files: dict[str, str | int] = {
        "hwmon0/name": "isl28022",
        "hwmon0/power2_label": "core",
        "hwmon0/power2_input": 7,
    }
    meter = opened(kind="hwmon", driver="isl28022", label="core", root=write_tree(tmp_path, files))
    assert meter.sampler is not None
    assert meter.sampler.sources == (f"file={tmp_path}/hwmon0/power2_input",)


def test_the_label_selects_between_two_chips_with_one_driver(tmp_path: Path) -> None:
    ina3221_tree(tmp_path)
    write_tree(
        tmp_path,
        {
            "hwmon9/name": "ina3221",
            "hwmon9/in1_label": "VDD_DDR",
            "hwmon9/in1_input": 5000,
            "hwmon9/curr1_input": 100,
        },
    )
    meter = opened(kind="hwmon", driver="ina3221", label="VDD_DDR", root=tmp_path)
    assert meter.sampler is not None
    assert "hwmon9" in meter.sampler.sources[0]
    assert "2 sensors have the driver ina3221" in refusal(
        kind="hwmon", driver="ina3221", channel=1, root=tmp_path
    )


@pytest.mark.parametrize(
    ("tree", "meter", "named"),
    [
        (
            ina226_tree,
            {"driver": "ina3221", "channel": 1},
            ["no hwmon sensor with driver 'ina3221'", "drivers found: cpu_thermal, ina226"],
        ),
        (
            ina3221_tree,
            {"driver": "ina3221", "label": "VDD_CPU"},
            ["no rail of ina3221 has the label 'VDD_CPU'", "VDD_CPU_GPU_CV, VDD_IN, VDD_SOC"],
        ),
        (
            ina3221_tree,
            {"driver": "ina3221", "label": "sum of shunt voltages"},
            ["labels found: VDD_CPU_GPU_CV, VDD_IN, VDD_SOC"],
        ),
        (
            ina226_tree,
            {"driver": "ina226", "label": "VDD"},
            ["labels found: none (name the rail by channel)"],
        ),
        (
            ina3221_tree,
            {"driver": "ina3221", "channel": 4},
            ["neither power nor voltage and current on channel 4", "channels found: 1, 2, 3"],
        ),
    ],
)
def test_a_missing_rail_is_an_error_that_lists_the_existing_ones(
    tree: Callable[[Path], Path], meter: dict[str, Any], named: list[str], tmp_path: Path
) -> None:
    sentence = refusal(kind="hwmon", root=tree(tmp_path), **meter)
    for part in named:
        assert part in sentence


def test_a_sensor_that_averages_over_another_time_than_described_is_refused(tmp_path: Path) -> None:
    meter = {"kind": "hwmon", "driver": "ina226", "channel": 1, "root": ina226_tree(tmp_path)}
    assert opened(**meter, integration_s=35.2e-3).sampler is not None  # the driver rounds it
    sentence = refusal(**meter, integration_s=8.8e-3)
    assert "averages over 35 ms, and its description says 8.8 ms" in sentence
    assert "write 9 to" in sentence


def test_a_chip_of_several_channels_may_average_over_less_than_its_interval(tmp_path: Path) -> None:
    root = ina3221_tree(tmp_path)
    write_tree(root, {"hwmon1/update_interval": 27})
    meter = {"kind": "hwmon", "driver": "ina3221", "label": "VDD_IN", "root": root}
    assert opened(**meter, integration_s=9e-3).sampler is not None


def test_a_sensor_that_cannot_be_read_is_an_error_with_its_file(tmp_path: Path) -> None:
    ina226_tree(tmp_path)
    (tmp_path / "hwmon3" / "power1_input").write_text("")
    sentence = refusal(kind="hwmon", driver="ina226", channel=1, root=tmp_path)
    assert "hwmon3/power1_input cannot be read" in sentence


def rapl_tree(root: Path, **changes: str | int) -> Path:
    files: dict[str, str | int] = {
        "intel-rapl:0/name": "package-0",
        "intel-rapl:0/energy_uj": 123,
        "intel-rapl:0/max_energy_range_uj": 262143328850,
        "intel-rapl:0:0/name": "core",
        "intel-rapl:0:0/energy_uj": 45,
        "intel-rapl:0:0/max_energy_range_uj": 262143328850,
        "dtpm/name": "no counter",
    }
    return write_tree(root, files | changes)


def test_a_powercap_zone_is_found_by_name(tmp_path: Path) -> None:
    meter = opened(kind="rapl", domain="core", root=rapl_tree(tmp_path))
    assert meter.sampler is not None
    assert meter.sampler.sources == (f"file={tmp_path}/intel-rapl:0:0/energy_uj",)
    assert "not the whole board" in meter.record.detail


def test_a_missing_powercap_zone_is_an_error_that_lists_the_existing_ones(
    tmp_path: Path,
) -> None:
    sentence = refusal(kind="rapl", domain="psys", root=rapl_tree(tmp_path))
    assert "no powercap zone 'psys'" in sentence
    assert "zones found: core, package-0" in sentence
    assert "zones found: none" in refusal(kind="rapl", root=tmp_path / "nothing")


def test_a_counter_that_only_root_may_read_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    root = rapl_tree(tmp_path, **{"intel-rapl:0/energy_uj": ""})
    sentence = refusal(kind="rapl", root=root)
    assert f"sudo chmod a+r {root}/intel-rapl:0/energy_uj" in sentence


# --- without a sensor -------------------------------------------------------------------------


def test_nominal_power_is_recorded_as_an_estimate() -> None:
    description = describe(nominal_power_w=4.0)
    meter = open_board_meter(description, here(description))
    assert meter is not None
    assert (meter.energy_source, meter.sampler) == ("estimated", None)
    assert "nothing measured" in meter.record.detail
    assert meter.finish(samples((0, 0))).energy_j(0, 250 * MS) == pytest.approx(1.0)


def test_without_meter_and_nominal_power_there_is_no_energy() -> None:
    assert open_board_meter(describe(), here(describe())) is None


# --- energy of a window -----------------------------------------------------------------------


def void_reason(trace: PowerTrace, start_ms: int, end_ms: int) -> str:
    reading = trace.steady_energy_j(start_ms * MS, end_ms * MS)
    assert isinstance(reading, Void)
    return reading.reason


def power(times_ms: list[int], watts: float = 2.0, saturated: int | None = None) -> SampledPower:
    return SampledPower(
        times_ns=np.array(times_ms, dtype=np.int64) * MS,
        power_w=np.full(len(times_ms), watts),
        saturated=np.arange(len(times_ms)) == (-1 if saturated is None else saturated),
        period_s=0.01,
    )


@settings(derandomize=True)
@given(
    levels=st.lists(st.floats(0.1, 20.0), min_size=30, max_size=60),
    start=st.integers(0, 50),
    length=st.integers(130, 200),
)
def test_energy_is_the_integral_between_two_instants(
    levels: list[float], start: int, length: int
) -> None:
    times = np.arange(len(levels)) * 10 * MS
    trace = SampledPower(times, np.array(levels), np.zeros(len(levels), dtype=bool), 0.01)
    fine = np.linspace(start * MS, (start + length) * MS, 20001)
    expected = np.interp(fine, times, levels).mean() * length * 1e-3
    assert trace.energy_j(start * MS, (start + length) * MS) == pytest.approx(expected, rel=1e-3)


def test_a_window_with_too_few_samples_is_void() -> None:
    trace = power(list(range(0, 500, 10)))
    assert isinstance(trace.energy_j(95 * MS, 195 * MS), float)
    assert void_reason(trace, 95, 185) == f"9 samples in the window, {MIN_SAMPLES} are needed"


def test_a_window_that_samples_do_not_span_is_void() -> None:
    trace = power(list(range(100, 400, 10)))
    assert "do not cover the whole window" in void_reason(trace, 90, 300)
    assert "do not cover the whole window" in void_reason(trace, 200, 395)


def test_lost_samples_void_their_window_and_not_its_neighbours() -> None:
    times = [t for t in range(0, 1000, 10) if not 500 < t < 550]
    assert void_reason(power(times), 400, 600) == ("no sample for 50 ms, one every 10 ms is due")
    assert isinstance(power(times).energy_j(300 * MS, 480 * MS), float)


def test_a_window_beyond_the_sensors_range_is_void() -> None:
    trace = power(list(range(0, 1000, 10)), saturated=50)
    assert void_reason(trace, 400, 600) == "the sensor's range was exceeded"
    assert isinstance(trace.energy_j(100 * MS, 300 * MS), float)


@pytest.mark.parametrize(
    ("tree", "meter", "full_scale_ma"),
    [
        (ina226_tree, {"driver": "ina226", "channel": 1}, 8192),  # 81.92 mV over 10 mΩ
        (ina3221_tree, {"driver": "ina3221", "label": "VDD_IN"}, 32760),  # 163.8 mV over 5 mΩ
    ],
)
def test_the_range_follows_from_chip_and_shunt(
    tree: Callable[[Path], Path], meter: dict[str, Any], full_scale_ma: int, tmp_path: Path
) -> None:
    found = opened(kind="hwmon", root=tree(tmp_path), **meter)
    below = found.finish(steadily(5000, int(0.99 * full_scale_ma)))
    beyond = found.finish(steadily(5000, full_scale_ma))
    assert isinstance(below.energy_j(100 * MS, 300 * MS), float)
    assert isinstance(beyond.energy_j(100 * MS, 300 * MS), Void)


def counter(risen_j: list[float], range_j: float) -> EnergyCounter:
    values = np.mod(np.array(risen_j), range_j)
    times = np.arange(len(values)) * 10 * MS
    return EnergyCounter(times, values, range_j, 0.01)


@settings(derandomize=True)
@given(power_w=st.floats(1.0, 200.0), range_j=st.floats(5.0, 70000.0), phase=st.floats(0.0, 1.0))
def test_energy_is_right_when_the_counter_wraps(
    power_w: float, range_j: float, phase: float
) -> None:
    trace = counter([phase * range_j + 0.01 * power_w * n for n in range(50)], range_j)
    assert trace.energy_j(105 * MS, 405 * MS) == pytest.approx(0.3 * power_w, rel=1e-6)


def test_a_counter_that_may_have_wrapped_twice_between_samples_is_void() -> None:
    trace = counter([0.6 * n for n in range(50)], range_j=1.0)
    assert "wrapped more than once" in void_reason(trace, 100, 400)


# --- readings that contain what was before ----------------------------------------------------


def step_up(response: Response, rate_hz: float, phase: float) -> tuple[NDArray, NDArray]:
    """Times in ns and readings around a step from 2 to 4 W at 0; ``phase`` is that of a register's
    changes."""
    times_s = np.arange(-0.5 + 0.37 * phase / rate_hz, 0.5, 1 / rate_hz)
    held_s, integration_s = response.held_s, float(response.integration_s)
    ends_s = times_s if not held_s else (np.floor(times_s / held_s - phase) + phase) * held_s
    share = np.clip((ends_s - response.newest_s) / integration_s, 0.0, 1.0)
    return np.rint(times_s * 1e9).astype(np.int64), 2.0 + 2.0 * share


SENSORS = [
    pytest.param(Response.held(35.2e-3), 200.0, id="ina226, the driver's default"),
    pytest.param(Response.held(8.8e-3), 100.0, id="ina226, four averages"),
    pytest.param(Response.held(2.2e-3), 200.0, id="ina226, no averages"),
    pytest.param(Response(2.2e-3, held_s=6.6e-3), 100.0, id="ina3221, three channels"),
    pytest.param(Response.centred(20e-3), 50.0, id="a multimeter"),
]


@pytest.mark.parametrize(("response", "rate_hz"), SENSORS)
def test_the_power_before_a_window_is_not_in_its_energy(response: Response, rate_hz: float) -> None:
    meter = HwmonMeter(kind="hwmon", driver="ina226", channel=1, rate_hz=rate_hz)
    least_s = least_window_s(meter, response.oldest_s)
    for phase in np.linspace(0.0, 1.0, 20, endpoint=False):
        times_ns, power_w = step_up(response, rate_hz, phase)
        never = np.zeros(len(times_ns), dtype=bool)
        trace = SampledPower(times_ns, power_w, never, 1 / rate_hz, response)
        lengths_s = np.linspace(0.1, 1.2, 23) * least_s
        for length_s in lengths_s:
            reading = trace.steady_energy_j(0, round(length_s * 1e9))
            if isinstance(reading, Void):
                assert length_s < least_s
            else:
                assert reading == pytest.approx(4.0 * length_s, rel=1e-6)


@pytest.mark.parametrize(("response", "rate_hz"), SENSORS)
def test_energy_between_two_instants_is_right_but_for_the_spread_of_ages(
    response: Response, rate_hz: float
) -> None:
    """In the mean over the phases of the register, and but for the distance of two samples."""
    found = []
    for phase in np.linspace(0.0, 1.0, 20, endpoint=False):
        times_ns, power_w = step_up(response, rate_hz, phase)
        never = np.zeros(len(times_ns), dtype=bool)
        trace = SampledPower(times_ns, power_w, never, 1 / rate_hz, response)
        found.append(trace.energy_j(0, 300 * MS))
    assert np.mean(found) == pytest.approx(
        1.2, abs=2.0 * (response.spread_s / 2 + 1 / rate_hz / 6) + 1e-3
    )


def test_a_counter_that_stands_still_counts_nothing_from_before_the_window() -> None:
    times_ns = np.arange(-500, 501, 10, dtype=np.int64) * MS
    changed_s = np.floor(times_ns / (7 * MS)) * 7e-3
    counter_j = 1.0 + changed_s * np.where(changed_s < 0, 2.0, 4.0)
    trace = EnergyCounter(times_ns, counter_j, 1e3, 0.01, Response(0.0, held_s=7e-3))
    assert trace.steady_energy_j(0, 400 * MS) == pytest.approx(1.6, rel=7 / 400)
    assert isinstance(trace.steady_energy_j(0, 5 * MS), Void)


def test_a_gap_of_a_counter_does_not_lengthen_what_its_other_readings_remember() -> None:
    times_ns = np.arange(1000, dtype=np.int64) * MS
    times_ns[500:] += 300 * MS
    trace = EnergyCounter(times_ns, times_ns * 2e-9, 1e3, 1e-3, Response(1e-3, held_s=1e-3))
    readings = trace.readings()
    assert not isinstance(readings, Void)
    assert readings.response is not None
    assert list(np.flatnonzero(~readings.sound)) == [499]
    assert readings.response.width_s == pytest.approx(2e-3)
    assert readings.response.oldest_s == pytest.approx(1.5e-3)


@pytest.mark.parametrize("guard_s", [0.0, 0.03])
def test_an_instruments_readings_from_before_a_window_are_left_out(guard_s: float) -> None:
    response = Response.low_pass(20.0)
    times_s = np.arange(-0.5, 0.5, 1e-3)
    power_w = 2.0 + 2.0 * (1 - np.exp(-np.maximum(times_s, 0.0) / response.decay_s))
    capture = Capture(-0.5, 1e-3, power_w, np.zeros(1000, dtype=np.uint8))
    clock = ClockMap(np.array([-NS // 2, NS // 2]), np.array([-0.5, 0.5]), 0.0)
    window_ns = (0, 300 * MS)
    trace = RecordedPower(capture, clock, guard_s, frozenset([window_ns]), response)
    assert trace.steady_energy_j(*window_ns) == pytest.approx(1.2, rel=1e-3)
    assert "remembers 63.66 ms" in void_reason(trace, 0, 60 + round(2e3 * guard_s))


def test_a_driver_says_how_long_its_chip_averages(tmp_path: Path) -> None:
    one, three = ina226_tree(tmp_path / "one"), ina3221_tree(tmp_path / "three")
    write_tree(three, {"hwmon1/update_interval": 27})
    single = opened(kind="hwmon", driver="ina226", channel=1, root=one)
    assert single.record.remembered_s == pytest.approx(0.07)
    assert single.finish(steadily(2_500_000, 500)).response == Response.held(35e-3)
    shared = {"kind": "hwmon", "driver": "ina3221", "label": "VDD_IN", "root": three}
    described = opened(**shared, integration_s=9e-3)
    assert described.record.remembered_s == pytest.approx(0.036)
    unknown = opened(**shared)
    assert unknown.record.remembered_s == pytest.approx(0.054)
    readings = unknown.finish(steadily(5000, 500)).readings()
    assert not isinstance(readings, Void)
    assert readings.response is None  # 27 ms are the longest possible time


# --- sampled on the board by the harness ------------------------------------------------------


def within_j(trace: SampledPower, signal: Signal, unit: float, start_ns: int, end_ns: int) -> float:
    """The most by which the energy of the samples and that of the signal may differ.

    Between two samples, the mean of both and the mean of the signal lie within the values that the
    signal has there. Nothing else limits the difference where a sample is late.
    """
    inside = (trace.times_ns > start_ns) & (trace.times_ns < end_ns)
    knots_ns = [start_ns, *trace.times_ns[inside].tolist(), end_ns]
    power_w = np.interp(knots_ns, trace.times_ns, trace.power_w)
    most_j = 0.0
    for (from_ns, to_ns), mean_w in zip(
        pairwise(knots_ns), (power_w[1:] + power_w[:-1]) / 2, strict=True
    ):
        values_w = [value * unit for value in signal.possible(from_ns, to_ns)]
        most_w = max(max(values_w) - mean_w, mean_w - min(values_w))
        most_j += most_w * (to_ns - from_ns) / 1e9
    return most_j


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tree", "meter", "moved", "values", "unit"),
    [
        (
            ina226_tree,
            {"driver": "ina226", "channel": 1},
            "hwmon3/power1_input",
            ["1200000", "6400000", "3100000"],
            1e-6,
        ),
        (
            ina3221_tree,
            {"driver": "ina3221", "label": "VDD_IN"},
            "hwmon1/curr1_input",
            ["0416", "1304", "0880"],
            19.072e-3,
        ),
    ],
)
def test_the_energy_of_a_window_is_the_integral_of_the_sensor_values(
    tree: Callable[[Path], Path],
    meter: dict[str, Any],
    moved: str,
    values: list[str],
    unit: float,
    compiled: tuple[Path, BuiltHarness],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    # Samples that are late on a busy machine void no window, but widen the bound.
    monkeypatch.setattr("profiler.meters.trace.MAX_GAP_PERIODS", math.inf)
    monkeypatch.setattr("profiler.meters.trace.MIN_SAMPLES", 0)
    root = tree(tmp_path / "class")
    (root / "hwmon3" / "update_interval").unlink(missing_ok=True)  # nothing averages the files
    found = opened(kind="hwmon", root=root, rate_hz=100, **meter)
    assert found.sampler is not None
    sources = "".join(f"sample {source}\n" for source in found.sampler.sources)
    idle = "".join(f"idle id={number} duration_ns=500000000\n" for number in range(4))
    plan = f"joulewright-plan 1\narena bytes=4096\nsampler period_ns=10000000\n{sources}{idle}end\n"
    with Signal(root / moved, values, hold_s=0.1) as signal:
        code, text, errors = run_harness(compiled[0], tmp_path, plan)
    assert (code, errors) == (0, "")
    trace = found.finish(
        block(parse_samples((tmp_path / "samples").read_text(), len(found.sampler.sources)))
    )
    assert isinstance(trace, SampledPower)
    times_ns = trace.times_ns.tolist()
    for before_ns, power_w, after_ns in zip(
        [0, *times_ns[:-1]], trace.power_w, [*times_ns[1:], times_ns[-1] + NS], strict=True
    ):
        possible_w = [value * unit for value in signal.possible(before_ns, after_ns)]
        assert any(power_w == pytest.approx(value_w, rel=1e-6) for value_w in possible_w)
    windows = parse_results(text).windows
    assert len(windows) == 4
    for window in windows:
        reading = trace.energy_j(window.start_ns, window.end_ns)
        true_j = signal.integral(window.start_ns, window.end_ns) * unit
        allowed_j = within_j(trace, signal, unit, window.start_ns, window.end_ns)
        assert reading == pytest.approx(true_j, abs=allowed_j + 1e-9)

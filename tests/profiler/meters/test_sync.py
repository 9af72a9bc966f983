"""Samples of instruments on the board's clock: synchronisation, energies and void windows.

Board and instrument are synthetic; their clocks differ by a known offset and rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from devices.errors import MeasurementInvalid
from devices.meters import GpioSync, MarkerSync, SteadySync
from profiler.meters.base import (
    MIN_SAMPLES,
    BlockRecord,
    BoardSamples,
    ClockReading,
    PowerTrace,
    Void,
)
from profiler.meters.capture import Capture, Flaw
from profiler.meters.on_host import HostMeter
from profiler.meters.sync.base import ClockMap, Synchroniser, SyncLost
from profiler.meters.sync.gpio import GpioSynchroniser
from profiler.meters.sync.marker import PATTERN, MarkerSynchroniser
from profiler.meters.sync.steady import SteadySynchroniser
from profiler.opening.meters import open_synchroniser

NS = 1_000_000_000
NO_SAMPLES = BoardSamples(np.empty(0, np.int64), np.empty((0, 0), np.int64))
IDLE_W, BUSY_W = 0.02, 0.11


@dataclass(frozen=True)
class Clocks:
    """Clocks of meter and board: meter time is ``offset_s + (1 + error) * board time``."""

    offset_s: float = 12.5
    error: float = 40e-6
    board_zero_ns: int = 7_000 * NS

    def meter_s(self, board_s: float) -> float:
        return self.offset_s + (1 + self.error) * board_s

    def board_ns(self, board_s: float) -> int:
        return self.board_zero_ns + round(board_s * NS)


@dataclass(frozen=True)
class Stretch:
    """A stretch of the board's time.

    ``line`` is whether the sync line is high, ``recorded`` whether it is in the board's records.
    """

    length_s: float
    power_w: float
    line: bool = False
    recorded: bool = False


def gap(length_s: float) -> Stretch:
    return Stretch(length_s, IDLE_W)


def window(length_s: float, power_w: float = BUSY_W, recorded: bool = True) -> Stretch:
    return Stretch(length_s, power_w, line=True, recorded=recorded)


def marker(bit_s: float) -> list[Stretch]:
    return [Stretch(bit_s, BUSY_W if bit else IDLE_W) for bit in PATTERN]


def edges_s(stretches: list[Stretch]) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum([stretch.length_s for stretch in stretches])])


def capture_of(
    stretches: list[Stretch], clocks: Clocks, rate_hz: float = 20_000.0, phase: float = 0.3
) -> Capture:
    """Capture of an ideal instrument, each sample the mean of its period."""
    edges = clocks.meter_s(0.0) + (1 + clocks.error) * edges_s(stretches)
    period_s = 1 / rate_hz
    count = int((edges[-1] - edges[0]) * rate_hz) - 1
    start_s = edges[0] + phase * period_s
    times_s = start_s + period_s * np.arange(count)
    power = np.array([stretch.power_w for stretch in stretches])
    joules = np.concatenate([[0.0], np.cumsum(np.diff(edges) * power)])
    bounds_s = start_s + period_s * (np.arange(count + 1) - 0.5)
    power_w = np.diff(np.interp(bounds_s, edges, joules)) / np.diff(
        np.clip(bounds_s, edges[0], None)
    )
    at = np.searchsorted(edges, times_s, side="right") - 1
    line = np.array([stretch.line for stretch in stretches])[at]
    return Capture(
        start_s=float(start_s),
        period_s=period_s,
        power_w=power_w.astype(np.float32),
        flaws=np.zeros(count, np.uint8),
        inputs=(line.astype(np.uint8) << 3) | np.uint8(0x40),
    )


def block_of(stretches: list[Stretch], clocks: Clocks, bit_s: float | None = None) -> BlockRecord:
    edges = edges_s(stretches)
    windows = [
        (clocks.board_ns(edges[n]), clocks.board_ns(edges[n + 1]))
        for n, stretch in enumerate(stretches)
        if stretch.recorded
    ]
    markers = ()
    if bit_s is not None:
        first, last = 1, len(stretches) - 1 - len(PATTERN)
        markers = (clocks.board_ns(edges[first]), clocks.board_ns(edges[last]))
    return BlockRecord(windows_ns=tuple(windows), markers_ns=markers, samples=NO_SAMPLES)


@dataclass
class Recorded:
    """An instrument with a given capture."""

    capture: Capture
    kind: str = "recorded"
    detail: str = "a test's"
    rate_hz: float = 20_000.0
    closed: bool = False

    def start(self) -> None:
        pass

    def stop(self) -> Capture:
        return self.capture

    def close(self) -> None:
        self.closed = True


def trace_of(capture: Capture, sync: Synchroniser, block: BlockRecord) -> PowerTrace:
    meter = HostMeter(Recorded(capture), sync, "measured")
    meter.begin()
    return meter.finish(block)


def void_of(trace: PowerTrace, window_ns: tuple[int, int]) -> str:
    reading = trace.energy_j(*window_ns)
    assert isinstance(reading, Void)
    return reading.reason


def worst_error_s(clock: ClockMap, clocks: Clocks, block: BlockRecord) -> float:
    return max(
        abs(clock.at(at) - clocks.meter_s((at - clocks.board_zero_ns) / NS))
        for window_ns in block.windows_ns
        for at in window_ns
    )


CLOCKS = st.builds(
    Clocks,
    offset_s=st.floats(-1e4, 1e6),
    error=st.floats(-150e-6, 150e-6),
    board_zero_ns=st.integers(0, 10**17),
)
PHASES = st.floats(0.05, 0.95)
WINDOWS = st.lists(
    st.tuples(st.floats(0.002, 0.03), st.floats(0.03, 0.2), st.floats(0.003, 0.05)),
    min_size=3,
    max_size=8,
)


# --- gpio -------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(clocks=CLOCKS, phase=PHASES, windows=WINDOWS, data=st.data())
def test_a_gpio_line_gives_clock_offset_rate_and_energy(
    clocks: Clocks, phase: float, windows: list[tuple[float, float, float]], data: st.DataObject
) -> None:
    stretches = [gap(0.05)]
    for length_s, power_w, pause_s in windows:
        for _ in range(data.draw(st.integers(0, 2), label="tries that are not recorded")):
            stretches += [window(length_s * 0.7, recorded=False), gap(pause_s / 2)]
        stretches += [window(length_s, power_w), gap(pause_s)]
    capture, block = capture_of(stretches, clocks, phase=phase), block_of(stretches, clocks)
    clock = GpioSynchroniser(3).clock(capture, block)
    assert clock.uncertainty_s == pytest.approx(capture.period_s / 2, rel=1e-3)
    assert worst_error_s(clock, clocks, block) <= 1.001 * clock.uncertainty_s
    trace = trace_of(capture, GpioSynchroniser(3), block)
    for (length_s, power_w, _), window_ns in zip(windows, block.windows_ns, strict=True):
        true_j = power_w * length_s * (1 + clocks.error)
        # Either end is off by the clock's uncertainty at most; power that is linear between means
        # of periods puts a quarter of a period of the step in power on the wrong side of it at
        # most (where a period's middle lies on the step).
        misplaced_j = clock.uncertainty_s * max(power_w, IDLE_W)
        smoothed_j = capture.period_s / 4 * abs(power_w - IDLE_W)
        leeway_j = 2 * (misplaced_j + smoothed_j) + 1e-3 * true_j
        reading = trace.energy_j(*window_ns)
        # What the clock makes of the window is shorter by the uncertainty of both ends at most.
        shortest_s = 0.999 * length_s - 2.01 * clock.uncertainty_s
        if clock.uncertainty_s > 0.01 * shortest_s:
            continue  # the window may be void: too short for this instrument
        assert reading == pytest.approx(true_j, abs=leeway_j)


def several(count: int = 12) -> list[Stretch]:
    stretches = [gap(0.05)]
    for n in range(count):
        stretches += [window(0.02 + 0.003 * n), gap(0.01 + 0.004 * (n * 5 % 7))]
    return stretches


@pytest.mark.parametrize(("before_s", "after_s"), [(40e-6, 240e-6), (130e-6, 130e-6), (0.0, 2e-4)])
def test_the_time_between_the_line_and_the_clock_is_not_part_of_a_window(
    before_s: float, after_s: float
) -> None:
    """The board is busy while it drives the line and reads its clock."""
    early, late = (Stretch(length_s, BUSY_W, line=True) for length_s in (before_s, after_s))
    stretches: list[Stretch] = []
    for each in several():
        stretches += [early, each, late] if each.line else [each]
    clocks = Clocks(error=100e-6)
    capture, block = capture_of(stretches, clocks, 100_000.0), block_of(stretches, clocks)
    clock = GpioSynchroniser(3).clock(capture, block)
    assert worst_error_s(clock, clocks, block) <= clock.uncertainty_s < 160e-6
    trace = trace_of(capture, GpioSynchroniser(3), block)
    for start_ns, end_ns in block.windows_ns:
        expected_j = BUSY_W * (end_ns - start_ns) / NS
        assert trace.energy_j(start_ns, end_ns) == pytest.approx(expected_j, rel=2e-3)


def test_a_line_without_edges_is_an_error_that_suggests_the_wire() -> None:
    capture, block = capture_of(several(), Clocks()), block_of(several(), Clocks())
    with pytest.raises(MeasurementInvalid, match=r"logic input 5 .* check the wire"):
        GpioSynchroniser(5).clock(capture, block)


def test_a_tail_after_the_last_window_is_on_the_same_clock() -> None:
    stretches = [*several(), Stretch(0.1, 0.07), gap(0.1)]
    clocks = Clocks(error=100e-6)
    trace = trace_of(
        capture_of(stretches, clocks), GpioSynchroniser(3), block_of(stretches, clocks)
    )
    edges = edges_s(stretches)
    reading = trace.energy_j(clocks.board_ns(edges[-3]), clocks.board_ns(edges[-2]))
    assert reading == pytest.approx(0.07 * 0.1, rel=2e-3)


def test_pulses_of_another_block_are_refused() -> None:
    block = block_of(several(), Clocks())
    other = [gap(0.05)]
    for n in range(12):
        other += [window(0.05 - 0.003 * n), gap(0.03)]
    reason = void_of(
        trace_of(capture_of(other, Clocks()), GpioSynchroniser(3), block), block.windows_ns[0]
    )
    assert "do not fit the 12 windows" in reason


def test_a_fast_clock_of_the_board_leaves_no_window_out() -> None:
    stretches, clocks = several(100), Clocks(error=-0.02)
    block = block_of(stretches, clocks)
    clock = GpioSynchroniser(3).clock(capture_of(stretches, clocks), block)
    assert clock.board_ns[-1] == block.windows_ns[-1][1]


def cut_short(capture: Capture, share: float) -> Capture:
    """What an instrument has whose memory is full before the block ends."""
    count = int(share * len(capture))
    assert capture.inputs is not None
    return replace(
        capture,
        power_w=capture.power_w[:count],
        flaws=capture.flaws[:count],
        inputs=capture.inputs[:count],
    )


def test_windows_before_the_end_of_a_full_capture_keep_their_energies() -> None:
    stretches, clocks = several(100), Clocks()
    capture, block = cut_short(capture_of(stretches, clocks), 0.5), block_of(stretches, clocks)
    trace = trace_of(capture, GpioSynchroniser(3), block)
    readings = [trace.energy_j(*each) for each in block.windows_ns]
    known = [not isinstance(reading, Void) for reading in readings]
    assert 20 < sum(known) < 80
    assert known == sorted(known, reverse=True)
    for reading, (begin_ns, end_ns) in zip(readings[: sum(known)], block.windows_ns, strict=False):
        assert reading == pytest.approx(BUSY_W * (end_ns - begin_ns) / NS, rel=0.02)
    assert "do not cover" in void_of(trace, block.windows_ns[-1])


def test_a_glitch_inside_one_window_does_not_void_the_block() -> None:
    stretches, clocks = several(), Clocks()
    capture, block = capture_of(stretches, clocks), block_of(stretches, clocks)
    assert capture.inputs is not None
    middle_s = clocks.meter_s(edges_s(stretches)[9] + 0.01)
    at = capture.around(middle_s, middle_s).start
    capture.inputs[at : at + 3] &= 0xF7
    clock = GpioSynchroniser(3).clock(capture, block)
    assert worst_error_s(clock, clocks, block) <= 1.1 * clock.uncertainty_s


def test_equal_windows_at_equal_distances_are_ambiguous() -> None:
    even = [gap(0.05)]
    for n in range(9):
        even += [window(0.02, recorded=n >= 1), gap(0.02)]
    capture, block = capture_of(even, Clocks()), block_of(even, Clocks())
    with pytest.raises(SyncLost, match="two ways"):
        GpioSynchroniser(3).clock(capture, block)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(first=st.integers(0, 9000), length=st.integers(1, 1500))
def test_lost_samples_void_the_windows_they_touch_and_no_others(first: int, length: int) -> None:
    stretches, clocks = several(), Clocks()
    capture, block = capture_of(stretches, clocks), block_of(stretches, clocks)
    lost = slice(first, min(first + length, len(capture)))
    assert capture.inputs is not None
    capture.power_w[lost], capture.flaws[lost] = np.nan, Flaw.LOST
    capture.inputs[lost] = capture.inputs[max(first - 1, 0)]
    trace = trace_of(capture, GpioSynchroniser(3), block)
    start_s, end_s = capture.time_s(lost.start), capture.time_s(lost.stop - 1)
    for start_ns, end_ns in block.windows_ns:
        bounds = [clocks.meter_s((at - clocks.board_zero_ns) / NS) for at in (start_ns, end_ns)]
        reading = trace.energy_j(start_ns, end_ns)
        if end_s < bounds[0] - 2 * capture.period_s or start_s > bounds[1] + 2 * capture.period_s:
            assert reading == pytest.approx(BUSY_W * (bounds[1] - bounds[0]), rel=5e-3)
        elif end_s > bounds[0] and start_s < bounds[1]:
            assert isinstance(reading, Void)


# --- marker -----------------------------------------------------------------------------------

BIT_S = 0.01


def marked(middle: list[Stretch], bit_s: float = BIT_S) -> list[Stretch]:
    return [gap(0.07), *marker(bit_s), *middle, *marker(bit_s), gap(0.09)]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    clocks=CLOCKS,
    phase=PHASES,
    windows=WINDOWS,
    noise_w=st.floats(0, 0.02),
    jitter_s=st.floats(0, 1e-4),
    seed=st.integers(0, 2**31),
)
def test_a_marker_gives_offset_and_rate_within_the_stated_uncertainty(
    clocks: Clocks,
    phase: float,
    windows: list[tuple[float, float, float]],
    noise_w: float,
    jitter_s: float,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    middle = [gap(0.03)]
    for length_s, power_w, pause_s in windows:
        middle += [window(length_s, power_w), gap(pause_s)]
    planned = marked(middle)
    block = block_of(planned, clocks, BIT_S)
    # The board is a little late for every bit of the pattern.
    edges = edges_s(planned)
    played = edges + np.where(
        np.arange(len(edges)) % len(edges) > 0, rng.uniform(0, jitter_s, len(edges)), 0
    )
    stretches = [
        replace(s, length_s=float(d)) for s, d in zip(planned, np.diff(played), strict=True)
    ]
    capture = capture_of(stretches, clocks, phase=phase)
    capture.power_w[:] += rng.normal(0, noise_w, len(capture)).astype(np.float32)
    clock = MarkerSynchroniser(BIT_S).clock(capture, block)
    # The stated uncertainty is a 95 % interval; every edge includes the board's mean lateness.
    assert worst_error_s(clock, clocks, block) <= 2.5 * clock.uncertainty_s + jitter_s / 2
    assert clock.uncertainty_s < BIT_S / 20


def test_a_block_without_its_final_marker_is_void() -> None:
    stretches, clocks = marked([gap(0.03), window(0.05), gap(0.05)]), Clocks()
    block = block_of(stretches, clocks, BIT_S)
    cut = replace(block, markers_ns=block.markers_ns[:1])
    reason = void_of(
        trace_of(capture_of(stretches, clocks), MarkerSynchroniser(BIT_S), cut), block.windows_ns[0]
    )
    assert "the marker after the block is missing" in reason


def test_a_capture_that_ends_before_the_final_marker_says_so() -> None:
    stretches, clocks = marked([gap(0.03), window(5.0), gap(0.05)]), Clocks()
    capture = cut_short(capture_of(stretches, clocks), 0.6)
    block = block_of(stretches, clocks, BIT_S)
    reason = void_of(trace_of(capture, MarkerSynchroniser(BIT_S), block), block.windows_ns[0])
    assert "the instrument recorded 3 s, and the marker after the block came 5 s after" in reason


@pytest.mark.parametrize("contrast_w", [0.0, 0.002])
def test_a_marker_that_is_too_faint_is_refused(contrast_w: float) -> None:
    stretches, clocks = marked([gap(0.03), window(0.05, IDLE_W), gap(0.05)]), Clocks()
    faint = [
        replace(s, power_w=IDLE_W + (contrast_w if s.power_w > IDLE_W else 0)) for s in stretches
    ]
    capture = capture_of(faint, clocks)
    capture.power_w[:] += np.random.default_rng(5).normal(0, 0.05, len(capture)).astype(np.float32)
    with pytest.raises(SyncLost, match=r"not recognised .* raise sync\.bit_s"):
        MarkerSynchroniser(BIT_S).clock(capture, block_of(stretches, clocks, BIT_S))


def test_a_marker_found_at_more_than_one_place_is_refused() -> None:
    clocks = Clocks()
    pause = [gap(0.1)]
    thrice = [gap(0.07), *marker(BIT_S), *pause, *marker(BIT_S), *pause, *marker(BIT_S), gap(0.09)]
    edges = edges_s(thrice)
    apart = len(PATTERN) + 1
    block = BlockRecord(
        windows_ns=((clocks.board_ns(0.5), clocks.board_ns(0.6)),),
        markers_ns=(clocks.board_ns(edges[1]), clocks.board_ns(edges[1 + apart])),
        samples=NO_SAMPLES,
    )
    with pytest.raises(SyncLost, match="more than one place"):
        MarkerSynchroniser(BIT_S).clock(capture_of(thrice, clocks), block)


def test_bits_too_short_for_the_instrument_are_refused() -> None:
    stretches, clocks = marked([gap(0.03), window(0.05), gap(0.05)]), Clocks()
    capture = capture_of(stretches, clocks, rate_hz=200.0)
    with pytest.raises(MeasurementInvalid, match=r"raise sync\.bit_s to 0\.02"):
        MarkerSynchroniser(BIT_S).clock(capture, block_of(stretches, clocks, BIT_S))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(clocks=CLOCKS, seed=st.integers(0, 2**31))
def test_a_marker_synchronises_a_polled_instrument(clocks: Clocks, seed: int) -> None:
    bit_s, rng = 0.23, np.random.default_rng(seed)
    stretches = marked([gap(0.5), window(3.0), gap(1.0), window(2.5), gap(0.7)], bit_s)
    fine = capture_of(stretches, clocks, rate_hz=2000.0)
    picked = np.arange(20, len(fine) - 40, 100) + rng.integers(
        0, 40, len(range(20, len(fine) - 40, 100))
    )
    times_s = fine.time_s(picked)
    polled = Capture(
        start_s=float(times_s[0]),
        period_s=0.05,
        power_w=fine.power_w[picked],
        flaws=np.zeros(len(picked), np.uint8),
        times_s=times_s,
    )
    block = block_of(stretches, clocks, bit_s)
    clock = MarkerSynchroniser(bit_s).clock(polled, block)
    assert worst_error_s(clock, clocks, block) <= 2 * clock.uncertainty_s


# --- steady -----------------------------------------------------------------------------------


def steady_block(
    stretches: list[Stretch], clocks: Clocks, bracket_s: float, at: tuple[float, float]
) -> BlockRecord:
    """Block with readings of the board's clock at its begin and end.

    ``at`` is the place between question and answer at which the board read its clock (0 to 1).
    """
    edges = edges_s(stretches)
    readings = tuple(
        ClockReading(
            board_ns=clocks.board_ns(board_s),
            asked_s=clocks.meter_s(board_s) - share * bracket_s,
            answered_s=clocks.meter_s(board_s) + (1 - share) * bracket_s,
        )
        for board_s, share in zip((edges[0], edges[-1]), at, strict=True)
    )
    return replace(block_of(stretches, clocks), clock=readings)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    clocks=CLOCKS,
    bracket_s=st.floats(1e-4, 0.06),
    at=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    power_w=st.floats(0.03, 0.5),
)
def test_this_computers_clock_places_long_windows(
    clocks: Clocks, bracket_s: float, at: tuple[float, float], power_w: float
) -> None:
    stretches = [gap(0.3), window(0.4, power_w), gap(0.2), window(0.6, power_w / 2), gap(0.3)]
    block = steady_block(stretches, clocks, bracket_s, at)
    capture = capture_of(stretches, clocks, rate_hz=1000.0)
    sync = SteadySynchroniser(0.05)
    clock = sync.clock(capture, block)
    assert worst_error_s(clock, clocks, block) <= clock.uncertainty_s + 1e-9
    trace = trace_of(capture, sync, block)
    for window_ns, true_j in zip(block.windows_ns, (power_w * 0.4, power_w * 0.3), strict=True):
        # The window's length is off by the uncertainty of both its ends at most.
        assert trace.energy_j(*window_ns) == pytest.approx(
            true_j, rel=1e-3 + 2 * clock.uncertainty_s / 0.4
        )


def test_a_clock_less_certain_than_the_guard_voids_the_block() -> None:
    stretches, clocks = [gap(0.3), window(0.6), gap(0.3)], Clocks()
    block = steady_block(stretches, clocks, 0.3, (0.5, 0.5))
    capture = capture_of(stretches, clocks, rate_hz=1000.0)
    reason = void_of(trace_of(capture, SteadySynchroniser(0.1), block), block.windows_ns[0])
    assert "only to 150 ms" in reason
    assert "raise sync.guard_s" in reason
    not_asked = replace(block, clock=())
    reason = void_of(trace_of(capture, SteadySynchroniser(0.1), not_asked), block.windows_ns[0])
    assert "was not read" in reason


@pytest.mark.parametrize(("error", "bracket_s"), [(0.04, 0.01), (-0.04, 0.01), (0.06, 0.09)])
def test_a_clock_as_inexact_as_an_oscillator_or_its_readings_is_accepted(
    error: float, bracket_s: float
) -> None:
    stretches, clocks = [gap(0.3), window(0.6), gap(0.3)], Clocks(error=error)
    block = steady_block(stretches, clocks, bracket_s, (0.5, 0.5))
    capture = capture_of(stretches, clocks, rate_hz=1000.0)
    clock = SteadySynchroniser(0.1).clock(capture, block)
    assert worst_error_s(clock, clocks, block) <= clock.uncertainty_s


@pytest.mark.parametrize("stood_still_s", [0.1, -0.1, 40.0, -40.0])
def test_a_clock_that_stood_still_during_the_block_voids_it(stood_still_s: float) -> None:
    """Either this computer's, or the board's, which may also have restarted."""
    stretches, clocks = [gap(0.3), window(0.6), gap(0.3)], Clocks()
    block = steady_block(stretches, clocks, 0.01, (0.5, 0.5))
    before, after = block.clock
    late = replace(after, board_ns=after.board_ns + round(stood_still_s * NS))
    capture = capture_of(stretches, clocks, rate_hz=1000.0)
    trace = trace_of(capture, SteadySynchroniser(0.1), replace(block, clock=(before, late)))
    assert "one of them stood still" in void_of(trace, block.windows_ns[0])


@pytest.mark.parametrize(
    "asleep_s", [((7.0, 7.0), (9.5, 9.5)), ((7.0, 9.5), (9.5, 9.5)), ((7.0, 7.0), (7.0, 9.5))]
)
def test_a_sleep_that_is_short_beside_the_block_voids_it_too(
    asleep_s: tuple[tuple[float, float], tuple[float, float]],
) -> None:
    stretches, clocks = [gap(0.3), window(0.6), gap(0.3)], Clocks()
    block = steady_block(stretches, clocks, 0.01, (0.5, 0.5))
    capture = capture_of(stretches, clocks, rate_hz=1000.0)
    readings = tuple(
        replace(reading, asleep_s=each) for reading, each in zip(block.clock, asleep_s, strict=True)
    )
    trace = trace_of(capture, SteadySynchroniser(0.1), replace(block, clock=readings))
    assert "this computer slept for 2.5 s" in void_of(trace, block.windows_ns[0])
    awake = tuple(replace(reading, asleep_s=(9.5, 9.5)) for reading in block.clock)
    trace = trace_of(capture, SteadySynchroniser(0.1), replace(block, clock=awake))
    assert not isinstance(trace.energy_j(*block.windows_ns[0]), Void)


def test_the_time_error_of_an_instrument_adds_to_the_clocks_uncertainty() -> None:
    stretches, clocks = [gap(0.3), window(0.6), gap(0.3)], Clocks()
    block = steady_block(stretches, clocks, 0.01, (0.5, 0.5))
    capture = capture_of(stretches, clocks, rate_hz=1000.0)
    assert SteadySynchroniser(0.1).clock(capture, block).uncertainty_s == pytest.approx(0.005)
    unsure = replace(capture, time_error_s=0.2)
    with pytest.raises(SyncLost, match="only to 205 ms"):
        SteadySynchroniser(0.1).clock(unsure, block)


def test_with_guards_a_window_with_a_tail_or_a_short_one_is_void() -> None:
    stretches, clocks = [gap(0.3), window(0.6), gap(0.3), window(0.15), gap(0.3)], Clocks()
    block = steady_block(stretches, clocks, 0.002, (0.5, 0.5))
    trace = trace_of(capture_of(stretches, clocks, rate_hz=1000.0), SteadySynchroniser(0.1), block)
    (start_ns, end_ns), short = block.windows_ns
    assert "settling tail" in void_of(trace, (start_ns, end_ns + NS // 10))
    assert "shorter than" in void_of(trace, short)


# --- void windows -----------------------------------------------------------------------------


def spoil(flaw: Flaw, count: int) -> Callable[[Capture, slice], None]:
    def apply(capture: Capture, part: slice) -> None:
        capture.flaws[part.start + 5 : part.start + 5 + count] |= np.uint8(flaw)

    return apply


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (spoil(Flaw.LOST, 1), "1 samples were lost"),
        (spoil(Flaw.SATURATED, 1), "range was exceeded"),
        (spoil(Flaw.RANGE_SWITCH, 40), "changing its range"),
        (spoil(Flaw.RANGE_SWITCH, 3), None),
    ],
)
def test_a_window_with_flawed_samples_is_void(
    damage: Callable[[Capture, slice], None], said: str | None
) -> None:
    stretches, clocks = several(), Clocks()
    capture, block = capture_of(stretches, clocks), block_of(stretches, clocks)
    edges = edges_s(stretches)
    damage(capture, capture.around(clocks.meter_s(edges[3]), clocks.meter_s(edges[4])))
    trace = trace_of(capture, GpioSynchroniser(3), block)
    if said is None:
        assert not isinstance(trace.energy_j(*block.windows_ns[1]), Void)
    else:
        assert said in void_of(trace, block.windows_ns[1])
    assert not isinstance(trace.energy_j(*block.windows_ns[2]), Void)


def test_windows_outside_the_capture_or_with_few_samples_are_void() -> None:
    stretches, clocks = several(), Clocks()
    capture, block = capture_of(stretches, clocks), block_of(stretches, clocks)
    trace = trace_of(capture, GpioSynchroniser(3), block)
    start_ns, end_ns = block.windows_ns[0]
    assert "do not cover" in void_of(trace, (start_ns - 3 * NS, end_ns))
    assert "do not cover" in void_of(trace, (start_ns, end_ns + 30 * NS))
    assert "not enough for a window" in void_of(trace, (start_ns, start_ns + 2_000_000))
    polled = replace(
        capture, times_s=capture.time_s(np.arange(len(capture))), period_s=capture.period_s
    )
    steady = SteadySynchroniser(0.0098)
    timed = replace(block, clock=steady_block(stretches, clocks, 1e-4, (0.5, 0.5)).clock)
    few = void_of(trace_of(polled, steady, timed), block.windows_ns[0])
    assert f"{MIN_SAMPLES} are needed" in few


def test_missed_polls_void_the_window() -> None:
    stretches, clocks = [gap(0.3), window(0.6), gap(0.3)], Clocks()
    capture = capture_of(stretches, clocks, rate_hz=200.0)
    kept = np.r_[0:100, 106 : len(capture)]
    polled = Capture(
        start_s=capture.start_s,
        period_s=capture.period_s,
        power_w=capture.power_w[kept],
        flaws=capture.flaws[kept],
        times_s=capture.time_s(kept),
    )
    block = steady_block(stretches, clocks, 1e-3, (0.5, 0.5))
    reason = void_of(trace_of(polled, SteadySynchroniser(0.05), block), block.windows_ns[0])
    assert "no sample for 35 ms" in reason


# --- the meter --------------------------------------------------------------------------------


def test_the_record_states_the_worst_uncertainty_of_all_blocks() -> None:
    stretches, clocks = several(), Clocks()
    block = block_of(stretches, clocks)
    instrument = Recorded(capture_of(stretches, clocks, rate_hz=20_000.0))
    meter = HostMeter(instrument, GpioSynchroniser(3), "emulated")
    assert meter.energy_source == "emulated"
    assert meter.record.sync_uncertainty_s is None
    for rate_hz, worst_s in ((20_000.0, 25e-6), (10_000.0, 50e-6), (40_000.0, 50e-6)):
        instrument.capture = capture_of(stretches, clocks, rate_hz=rate_hz)
        meter.begin()
        meter.finish(block)
        assert meter.record.sync_uncertainty_s == pytest.approx(worst_s)
    assert meter.record.sync == "gpio: the board's line on logic input 3"
    assert (meter.marker, meter.sampler) == (None, None)
    meter.close()
    assert instrument.closed


def test_a_block_cut_short_before_its_first_window_is_void() -> None:
    capture = capture_of(several(), Clocks())
    empty = BlockRecord(windows_ns=(), markers_ns=(), samples=NO_SAMPLES)
    assert "cut short" in void_of(trace_of(capture, GpioSynchroniser(3), empty), (0, NS))


def test_every_kind_of_sync_can_be_opened() -> None:
    gpio = open_synchroniser(GpioSync(kind="gpio", input=2))
    played = open_synchroniser(MarkerSync(kind="marker", bit_s=0.05))
    steady = open_synchroniser(SteadySync(kind="steady", guard_s=0.2))
    assert "logic input 2" in gpio.name
    assert played.marker is not None
    assert (played.marker.bits, played.marker.bit_s) == (PATTERN, 0.05)
    assert (gpio.guard_s, played.guard_s, steady.guard_s) == (0.0, 0.0, 0.2)

"""The Nordic PPK2: every lost sample is found, and energies are right.

The stand-in on a pseudo-terminal speaks the instrument's protocol. It has the calibration written
here; the client computes the formula in the other direction.
"""

from __future__ import annotations

import os
import pty
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import serial
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from devices.errors import BoardInUse, BoardUnreachable, MeasurementInvalid
from devices.meters import Ppk2Meter
from profiler.meters.base import BlockRecord, BoardSamples, Void
from profiler.meters.capture import Capture, Flaw
from profiler.meters.on_host import HostMeter
from profiler.meters.ppk2.capture import decode
from profiler.meters.ppk2.current import AmpereDecoder, Metadata, MetadataError
from profiler.meters.ppk2.losses import Arrivals
from profiler.meters.ppk2.ppk2 import Ppk2, open_ppk2
from profiler.meters.stand_ins.ppk2 import Loss, Ppk2StandIn, Scenario, Step
from profiler.opening.meters import open_synchroniser
from tests.support.boards.processes import wait_until
from tests.support.failures import sentence_of
from tests.support.queued import counting_queued

RATE_HZ = 100_000
ALL = slice(None)
R_OHM = (1031.64, 101.65, 10.15, 0.94, 0.043)
NEUTRAL = {"GS": 0.0, "GI": 1.0, "O": 0.0, "S": 0.0, "I": 0.0, "UG": 1.0}


def answer(changes: dict[str, str] | None = None) -> bytes:
    """Metadata in the instrument's format."""
    values = {f"R{r}": f"{R_OHM[r]:.4f}" for r in range(5)}
    values |= {f"{name}{r}": f"{value:.4f}" for name, value in NEUTRAL.items() for r in range(5)}
    values |= {"VDD": "3300", "HW": "9173", "mode": "2", "IA": "56"} | (changes or {})
    lines = ["Calibrated: 0", *(f"{key}: {value}" for key, value in values.items()), "END"]
    return "\n".join(lines).encode() + b"\n"


METADATA = Metadata.parse(answer())


def words_of(
    codes: NDArray[Any], ranges: NDArray[Any] | int, logic: NDArray[Any] | int = 0, first: int = 0
) -> NDArray[np.uint32]:
    number = np.arange(len(codes))
    counters = (number + first) % 64
    packed = codes | np.asarray(ranges) << 14 | counters << 18 | np.asarray(logic) << 24
    return np.asarray(packed, dtype="<u4")


def ampere(code: float, number: int) -> float:
    return 4 * code * 1.8 / 163840 / R_OHM[number]


# --- lost samples -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """A stream of random samples in the fourth range, which identify themselves by their value.

    The stream never pauses, lacks the bytes of each loss (``first``, ``count``), and is read in
    pieces with some latency.
    """

    codes: NDArray[np.int64]
    logic: NDArray[np.int64]
    lost: NDArray[np.bool_]
    stream: bytes
    arrivals: Arrivals

    @classmethod
    def of(cls, losses: list[tuple[int, int]], samples: int, seed: int) -> Sent:
        rng = np.random.default_rng(seed)
        codes, logic = rng.integers(200, 1200, samples), rng.integers(0, 256, samples)
        sent = words_of(codes, 3, logic, int(rng.integers(0, 64))).tobytes()
        kept = np.ones(len(sent), dtype=bool)
        for first, count in losses:
            kept[first : first + count] = False
        # A piece is read every 1 to 4 ms, without the samples younger than the latency.
        read_s = np.cumsum(rng.uniform(0.001, 0.004, samples // 250))
        read_s = read_s[read_s < samples / RATE_HZ]
        latency_s = 60e-6 + rng.exponential(150e-6, len(read_s))
        latency_s[rng.random(len(read_s)) < 0.05] += 0.02
        taken = np.clip((read_s - latency_s) * RATE_HZ, 0, None).astype(np.int64)
        taken = np.append(np.maximum.accumulate(taken), samples)
        read_s = np.append(read_s, samples / RATE_HZ + 60e-6) + 5000.0
        so_far = np.concatenate([[0], np.cumsum(kept)])[4 * taken]
        stream = np.frombuffer(sent, np.uint8)[kept].tobytes()
        return cls(codes, logic, ~kept.reshape(-1, 4).all(axis=1), stream, Arrivals(so_far, read_s))

    def capture(self) -> Capture:
        capture = decode(self.stream, self.arrivals, METADATA, 3.0)
        assert capture is not None
        return capture


def check(sent: Sent, capture: Capture) -> None:
    """Check that every lost or wrong sample is flagged, and that every sample is in its place."""
    flagged = capture.flawed(Flaw.LOST, ALL)
    assert len(capture) == len(sent.codes)
    assert flagged[sent.lost].all()
    good = ~flagged
    power_w = 3.0 * ampere(1.0, 3) * sent.codes
    np.testing.assert_allclose(capture.power_w[good], power_w[good], rtol=1e-5)
    assert capture.inputs is not None
    np.testing.assert_array_equal(capture.inputs[good], sent.logic[good])
    assert np.isnan(capture.power_w[flagged]).all()


@settings(max_examples=15, deadline=None, derandomize=True)
@given(samples=st.integers(40, 250_000), seed=st.integers(0, 2**31))
def test_a_stream_without_losses_has_no_flaws(samples: int, seed: int) -> None:
    sent = Sent.of([], samples, seed)
    capture = sent.capture()
    check(sent, capture)
    assert not capture.flaws.any()
    assert abs(capture.start_s - 5000.0) <= capture.time_error_s


SAMPLES = 300_000
# Bytes from 0.7 s to 2.3 s, so that arrival times before and after can tell a loss.
PLACES = st.integers(4 * 70_000, 4 * 230_000)
LENGTHS = st.one_of(
    st.integers(1, 12),
    st.integers(1, 9000),
    st.integers(1, 60).map(lambda laps: 256 * laps),
    st.integers(1, 2000).map(lambda words: 4 * words),
)


@pytest.mark.slow
@settings(max_examples=50, deadline=None, derandomize=True)
@example(place=507_969, length=5360, seed=74)  # a piece that ends inside a word after the gap
@given(place=PLACES, length=LENGTHS, seed=st.integers(0, 2**31))
def test_a_single_loss_is_always_found(place: int, length: int, seed: int) -> None:
    sent = Sent.of([(place, length)], SAMPLES, seed)
    capture = sent.capture()
    check(sent, capture)
    # Few more samples are flagged than lost: at most those between two arrivals at their earliest.
    assert capture.flawed(Flaw.LOST, ALL).sum() <= length / 4 + 0.1 * RATE_HZ


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@example(losses=[(280_000, 9472)], seed=190)  # pieces without a sample during the loss
@given(
    losses=st.lists(st.tuples(PLACES, LENGTHS), min_size=2, max_size=5), seed=st.integers(0, 2**31)
)
def test_several_losses_are_all_found(losses: list[tuple[int, int]], seed: int) -> None:
    sent = Sent.of(losses, SAMPLES, seed)
    check(sent, sent.capture())


@settings(max_examples=25, deadline=None, derandomize=True)
@given(place=st.integers(200, 4 * 900), length=st.integers(1, 252), seed=st.integers(0, 2**31))
def test_a_short_loss_is_found_from_the_counter_alone(place: int, length: int, seed: int) -> None:
    sent = Sent.of([(place, length)], 2000, seed)
    check(sent, sent.capture())


@pytest.mark.parametrize("lost", [0, 64_000, 1])
def test_a_reader_held_up_for_seconds_hides_no_loss(lost: int) -> None:
    losses = [(4 * 200_000, 4 * lost)] if lost else []
    sent = Sent.of(losses, 600_000, 3)
    times_s = sent.arrivals.times_s
    kept = (times_s < 5001.5) | (times_s > 5004.2)
    arrivals = Arrivals(sent.arrivals.bytes_so_far[kept], times_s[kept])
    held_up = replace(sent, arrivals=arrivals)
    check(held_up, held_up.capture())
    assert held_up.capture().flawed(Flaw.LOST, ALL).any() == bool(lost)


def test_a_damaged_word_marks_itself_and_its_neighbours_as_lost() -> None:
    sent = Sent.of([], 1000, 1)
    stream = bytearray(sent.stream)
    stream[4 * 500 + 2] ^= 0x54  # in the counter
    capture = decode(bytes(stream), sent.arrivals, METADATA, 3.0)
    assert capture is not None
    assert len(capture) == 1000
    assert list(np.flatnonzero(capture.flawed(Flaw.LOST, ALL))) == list(range(496, 505))


def test_bytes_left_by_an_earlier_session_are_ignored() -> None:
    sent = Sent.of([], 1000, 1)
    left = b"END\nHW: 9173\n"
    arrivals = Arrivals(sent.arrivals.bytes_so_far + len(left), sent.arrivals.times_s)
    capture = decode(left + sent.stream, arrivals, METADATA, 3.0)
    assert capture is not None
    assert len(capture) == 1000


@pytest.mark.parametrize("stream", [b"", b"\0" * 4000, b"no samples at all " * 300])
def test_a_stream_without_samples_is_no_capture(stream: bytes) -> None:
    arrivals = Arrivals(np.array([len(stream)]), np.array([1.0]))
    assert decode(stream, arrivals, METADATA, 3.0) is None


# --- amperes ----------------------------------------------------------------------------------


@settings(derandomize=True)
@given(
    number=st.integers(0, 4),
    code=st.integers(50, 1500),
    gs=st.floats(-0.1, 0.1),
    gi=st.floats(0.9, 1.1),
    o=st.floats(0, 200),
    s=st.floats(-1e-6, 1e-6),
    i=st.floats(-1e-6, 1e-6),
    ug=st.floats(0.9, 1.1),
)
def test_current_follows_the_calibration_formula(
    number: int, code: int, gs: float, gi: float, o: float, s: float, i: float, ug: float
) -> None:
    values = {"GS": gs, "GI": gi, "O": o, "S": s, "I": i, "UG": ug}
    metadata = Metadata.parse(answer({f"{k}{number}": repr(v) for k, v in values.items()}))
    decoded = AmpereDecoder(metadata, 3.3).decode(words_of(np.full(5, code), number))
    x = (4 * code - o) * (1.8 / 163840) / R_OHM[number]
    assert decoded.current_a == pytest.approx(ug * (x * (gs * x + gi) + s * 3.3 + i), rel=1e-9)
    assert not decoded.settling.any()


def app_filter(amperes: NDArray[Any], ranges: NDArray[Any]) -> tuple[list[float], list[bool]]:
    """Filter of Nordic's app after a change of range, sample by sample.

    Returns the filtered currents in A, and whether the filter applies to each sample.
    """
    slow = fast = None
    before, left, nth = int(ranges[0]), 0, 0
    shown, touched = [], []
    for value, number in zip(map(float, amperes), map(int, ranges), strict=True):
        kept = (fast, slow)
        fast = value if fast is None else 0.18 * value + 0.82 * fast
        slow = value if slow is None else 0.06 * value + 0.94 * slow
        touched.append(number != before or left > 0)
        if touched[-1]:
            left, nth = (3, 0) if number != before else (left, nth + 1)
            if number == 4 and nth < 2:
                fast, slow = kept
            value = slow if number == 4 else fast  # type: ignore[assignment]
            left -= 1
        shown.append(value)
        before = number
    return shown, touched


@pytest.mark.slow
@settings(max_examples=150, derandomize=True)
@given(
    stays=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), min_size=1, max_size=12),
    cuts=st.lists(st.integers(1, 60), max_size=3),
    seed=st.integers(0, 2**31),
)
def test_changes_of_range_are_smoothed_as_nordics_app_does(
    stays: list[tuple[int, int]], cuts: list[int], seed: int
) -> None:
    ranges = np.repeat([number for number, _ in stays], [length for _, length in stays])
    codes = np.random.default_rng(seed).integers(100, 1500, len(ranges))
    plain = np.array([ampere(c, r) for c, r in zip(codes, ranges, strict=True)])
    assume((plain <= 1.0).all())
    decoder = AmpereDecoder(METADATA, 3.3)
    pieces = np.split(words_of(codes, ranges), sorted(cut for cut in cuts if cut < len(ranges)))
    decoded = [decoder.decode(piece) for piece in pieces if len(piece)]
    shown, touched = app_filter(plain, ranges)
    np.testing.assert_allclose(np.concatenate([d.current_a for d in decoded]), shown, rtol=1e-9)
    assert np.concatenate([d.settling for d in decoded]).tolist() == touched


def test_the_end_of_the_highest_range_and_more_than_an_ampere_are_saturation() -> None:
    codes = np.array([900, 16383, 900, 950, 990, 900])
    decoded = AmpereDecoder(METADATA, 3.3).decode(words_of(codes, 4))
    assert decoded.saturated.tolist() == [False, True, False, False, True, False]
    lower = AmpereDecoder(METADATA, 3.3).decode(words_of(np.array([800, 16383, 800]), 1))
    assert not lower.saturated.any()
    assert lower.settling.tolist() == [False, True, False]


def test_metadata_is_found_among_streamed_samples() -> None:
    noise = words_of(np.arange(5000) % 300, 2).tobytes()
    old = answer({"R0": "1.0"})[:80]
    for received in (answer(), noise + answer(), noise[:1001] + old + noise + answer() + noise):
        assert Metadata.parse(received).r_ohm == pytest.approx(R_OHM)
        assert Metadata.parse(received).hardware == "9173"


def test_missing_calibration_values_fall_back_to_defaults() -> None:
    metadata = Metadata.parse(answer({"GS2": "-nan", "GI2": "nan", "R4": "-nan"}))
    assert (metadata.gs[2], metadata.gi[2], metadata.r_ohm[4]) == (0.0, 1.0, 0.043)


@pytest.mark.parametrize(
    ("received", "said"),
    [
        (b"", "no answer"),
        (answer()[:-8], "no answer"),
        (answer().replace(b"UG3: 1.0000\n", b""), "lacks UG3"),
        (answer({"O1": "12,5"}), "'12,5' is not a number"),
    ],
)
def test_incomplete_metadata_is_refused(received: bytes, said: str) -> None:
    with pytest.raises(MetadataError, match=said):
        Metadata.parse(received)


# --- the client, against the stand-in ---------------------------------------------------------


def described(port: str, **changes: Any) -> Ppk2Meter:
    fields: dict[str, Any] = {
        "kind": "ppk2",
        "port": port,
        "mode": "source",
        "voltage_v": 3.3,
        "sync": {"kind": "gpio", "input": 2},
    }
    return Ppk2Meter.model_validate(fields | changes)


class Late(Exception):
    """Samples did not arrive on time, by the client's own record.

    ``queued_s`` are the seconds without a processor meanwhile.
    """

    queued_s: float = 0.0


@contextmanager
def connected(scenario: Scenario, **changes: Any) -> Iterator[tuple[Ppk2StandIn, Ppk2]]:
    with Ppk2StandIn(scenario) as stand_in:
        instrument = open_ppk2(described(stand_in.port, **changes))
        try:
            with counting_queued() as queued:
                yield stand_in, instrument
        except Late as late:
            late.queued_s = queued.seconds
            raise
        finally:
            instrument.close()


CALM_BINS = 10
CALM_S = 150e-6
ATTEMPTS = 3
BUSY_S = 0.05
"""Time without a processor that explains late samples: the pseudo-terminal holds 0.01 s of them."""


def is_calm(scenario: Scenario, started_s: float, arrivals: Arrivals) -> bool:
    """Whether samples arrived on time at least once in every fifth of a second.

    On a real instrument the computer has no part in that. Here it also has to produce the samples,
    and a delay of its own looks like a loss.
    """
    sent = arrivals.bytes_so_far.copy()
    for loss in sorted(scenario.losses, key=lambda loss: loss.sample):
        sent[sent > 4 * loss.sample + loss.offset] += loss.bytes
    rate_hz = RATE_HZ * (1 + scenario.clock_error)
    late_s = arrivals.times_s - started_s - sent // 4 / rate_hz
    bins = ((arrivals.times_s - started_s) / 0.02).astype(int)
    numbers, of_arrival = np.unique(bins, return_inverse=True)
    if len(numbers) < max(CALM_BINS, 0.8 * (numbers[-1] - numbers[0])):
        return False
    least_s = np.full(len(numbers), np.inf)
    np.minimum.at(least_s, of_arrival, late_s)
    return bool(np.ptp(sliding_window_view(least_s, CALM_BINS).min(axis=1)) < CALM_S)


def repeated_if_late(test: Callable[[], None]) -> Callable[[], None]:
    """A test that is repeated if samples are late.

    It is skipped if they are late time after time while other programs have the processors, and
    fails if they are late otherwise.
    """

    @wraps(test)
    def repeated() -> None:
        seen: list[Late] = []
        for _ in range(ATTEMPTS):
            try:
                test()
            except Late as late:
                seen.append(late)
            else:
                return
        if min(late.queued_s for late in seen) < BUSY_S:
            pytest.fail(f"samples were late on a computer with time for them: {seen}")
        if seen[-1].__cause__ is not None:
            raise seen[-1]
        pytest.skip(f"this computer is too busy for the stand-in: {seen[-1]}")

    return repeated


@contextmanager
def arriving_on_time(stand_in: Ppk2StandIn) -> Iterator[None]:
    """Stop the instrument inside.

    Raises :class:`Late`, from the refusal of the block if it was refused.
    """
    refusal = None
    with patch("profiler.meters.ppk2.ppk2.decode", wraps=decode) as decoding:
        try:
            yield
        except MeasurementInvalid as error:
            refusal = error
    status = stand_in.status()
    if decoding.called:
        arrivals: Arrivals = decoding.call_args.args[1]
        if status.overflowed or not is_calm(stand_in.scenario, status.started_s, arrivals):
            raise Late(str(status)) from refusal
    if refusal is not None:
        raise refusal


def finished(stand_in: Ppk2StandIn, instrument: Ppk2) -> Capture:
    """Stop and return the capture."""
    with arriving_on_time(stand_in):
        capture = instrument.stop()
    wait_until(lambda: not stand_in.status().streaming)
    assert len(capture) == stand_in.status().samples
    return capture


def recorded(scenario: Scenario, duration_s: float = 0.3) -> Capture:
    with connected(scenario) as (stand_in, instrument):
        instrument.start()
        time.sleep(duration_s)
        return finished(stand_in, instrument)


@pytest.mark.slow
@repeated_if_late
def test_at_full_rate_no_sample_is_lost_and_the_energy_is_right() -> None:
    steps = (Step(0.05, 20e-6), Step(0.05, 300e-6), Step(0.02, 0.003), Step(0.04, 0.03, inputs=4))
    steps += (Step(0.04, 0.45, inputs=0x81),)
    period = round(sum(step.length_s for step in steps) * RATE_HZ)
    with connected(Scenario(steps, still_streaming=True)) as (stand_in, instrument):
        assert instrument.detail == "PPK2 (hardware 9173), feeds 3.3 V"
        instrument.start()
        time.sleep(0.5)
        capture = finished(stand_in, instrument)
        status = stand_in.status()
        assert (status.mode, status.millivolts, status.powered) == (2, 3300, True)
        instrument.close()
        assert stand_in.status().powered
    assert not capture.flawed(Flaw.LOST, ALL).any()
    whole = len(capture) // period * period
    assert whole
    drawn_w = 3.3 * sum(step.length_s * step.current_a for step in steps) / (period / RATE_HZ)
    assert capture.power_w[:whole].mean() == pytest.approx(drawn_w, rel=1e-3)
    assert capture.inputs is not None
    expected = np.repeat([step.inputs for step in steps], [round(s.length_s * 1e5) for s in steps])
    np.testing.assert_array_equal(capture.inputs[:period], expected)
    # Four changes up and one back down to the lowest range, three samples each.
    settling = capture.flawed(Flaw.RANGE_SWITCH, slice(period, 2 * period))
    assert settling.sum() == 15
    for step, end in zip(steps, np.cumsum([round(s.length_s * 1e5) for s in steps]), strict=True):
        inside = capture.power_w[end - 1000 : end]
        assert inside == pytest.approx(3.3 * step.current_a, rel=2e-2)


@pytest.mark.slow
@repeated_if_late
def test_losses_of_the_stand_in_are_found() -> None:
    """Every stretch of flagged samples has lost ones, and every lost sample is flagged."""
    losses = (
        Loss(sample=60_000, bytes=256),
        Loss(sample=64_000, bytes=3, offset=2),
        Loss(sample=70_000, bytes=4 * 500),
    )
    capture = recorded(Scenario((Step(0.4, 0.02, 1), Step(0.3, 0.01)), losses=losses))
    flagged = capture.flawed(Flaw.LOST, ALL)
    lost = np.zeros(len(flagged), bool)
    for first, last in ((60_000, 60_064), (64_000, 64_001), (70_000, 70_500)):
        lost[first:last] = True
    assert flagged[lost].all()
    edges = np.flatnonzero(np.diff(flagged, prepend=False, append=False)).reshape(-1, 2)
    assert all(lost[first:last].any() for first, last in edges)
    assert capture.inputs is not None
    falls = np.flatnonzero(np.diff(capture.inputs[80_000:].astype(int)) < 0) + 80_000
    assert falls[0] == 110_000 - 1  # 0.7 s later than the first, at 0.4 s


@pytest.mark.slow
@repeated_if_late
def test_a_clock_error_of_the_instrument_is_not_taken_for_a_loss() -> None:
    capture = recorded(Scenario(clock_error=100e-6))
    assert not capture.flaws.any()


@pytest.mark.slow
@repeated_if_late
def test_currents_beyond_its_range_are_saturated_and_settling_is_flagged() -> None:
    steps = (Step(0.1, 0.4), Step(0.1, 1.3), Step(0.1, 0.001))
    capture = recorded(Scenario(steps, settling=2))
    saturated = capture.flawed(Flaw.SATURATED, slice(0, 30_000))
    assert saturated[10_000:20_000].all()
    assert not saturated[:10_000].any()
    assert not saturated[20_003:].any()
    trusted = ~capture.flawed(Flaw.RANGE_SWITCH, slice(20_000, 30_000))
    assert capture.power_w[20_000:30_000][trusted] == pytest.approx(0.0033, rel=1e-2)


@pytest.mark.slow
@repeated_if_late
def test_the_windows_of_a_block_get_their_energies() -> None:
    """The stand-in also drives the board's line; its clock runs 80 ppm faster than the board's."""
    windows = [(0.05, 0.02), (0.08, 0.012), (0.03, 0.3), (0.06, 0.0008)]
    steps: tuple[Step, ...] = (Step(0.6, 0.001),)
    board_s, windows_ns = 0.6, []
    for length_s, current_a in windows:
        steps += (Step(length_s, current_a, inputs=4), Step(0.02, 0.001))
        windows_ns.append((round(board_s * 1e9), round((board_s + length_s) * 1e9)))
        board_s += length_s + 0.02
    steps += (Step(9.0, 0.001),)
    scenario = Scenario(steps, clock_error=80e-6, losses=(Loss(sample=70_000, bytes=40),))
    block = BlockRecord(
        windows_ns=tuple(windows_ns),
        markers_ns=(),
        samples=BoardSamples(np.empty(0, np.int64), np.empty((0, 0), np.int64)),
    )
    with connected(scenario) as (stand_in, instrument):
        sync = open_synchroniser(described("-").sync)
        meter = HostMeter(instrument, sync, "emulated")
        meter.begin()
        time.sleep(0.5)
        with arriving_on_time(stand_in):
            trace = meter.finish(block)
    readings = [trace.energy_j(*window_ns) for window_ns in windows_ns]
    lost = readings[1]
    assert isinstance(lost, Void)
    assert "samples were lost" in lost.reason
    for reading, (length_s, current_a) in list(zip(readings, windows, strict=True))[::2]:
        assert reading == pytest.approx(3.3 * current_a * length_s, rel=5e-3)
    assert meter.record.kind == "ppk2"
    assert meter.record.rate_hz == RATE_HZ
    assert meter.record.sync_uncertainty_s == pytest.approx(5e-6)


@pytest.mark.slow
def test_a_reader_that_is_late_by_itself_is_no_busy_computer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("profiler.meters.ppk2.ppk2._POLL_S", 0.05)
    with pytest.raises(pytest.fail.Exception, match="samples were late"):
        test_a_clock_error_of_the_instrument_is_not_taken_for_a_loss()


def test_mode_and_voltage_are_set_as_described() -> None:
    with connected(Scenario(), mode="ampere", voltage_v=1.85) as (stand_in, instrument):
        wait_until(lambda: stand_in.status().millivolts == 1850)
        assert stand_in.status().mode == 1
        assert instrument.detail == ("PPK2 (hardware 9173), ampere meter, supply taken as 1.85 V")


def refusal(port: str) -> str:
    return sentence_of(BoardUnreachable, lambda: open_ppk2(described(port)))


@pytest.mark.slow
def test_a_missing_or_silent_port_is_an_error() -> None:
    assert "the port does not exist: plug the PPK2 in" in refusal("/dev/serial/by-id/none")
    with Ppk2StandIn(Scenario(mute=True)) as mute:
        assert "try the other one" in refusal(mute.port)


def test_an_instrument_that_another_program_uses_is_told_from_a_lost_one() -> None:
    ends = pty.openpty()
    port = os.ttyname(ends[1])
    with serial.Serial(port, exclusive=True):
        said = sentence_of(BoardInUse, lambda: open_ppk2(described(port)))
    assert said.startswith(f"PPK2 on {port}: another program uses it, process {os.getpid()} on ")
    for end in ends:
        os.close(end)


def test_an_instrument_unplugged_in_a_block_is_an_error_and_can_be_closed() -> None:
    with connected(Scenario()) as (stand_in, instrument):
        instrument.start()
        stand_in.vanish()
        with pytest.raises(BoardUnreachable, match=r"lost during a block .* check its cable"):
            instrument.stop()

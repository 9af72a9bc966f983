"""Limits beyond which a window is void, and the values that a trial takes from its record."""

from __future__ import annotations

import pytest

from devices.errors import MeasurementInvalid
from profiler.meters.base import Void
from profiler.run.evaluate import evaluate
from profiler.run.table import TrialTable
from profiler.run.trials import HarnessRun, HarnessRunHeader
from profiler.script.records import Health, WindowRecord
from profiler.script.transfers import TransferWindow
from profiler.script.windows import IdleWindow, OpWindow
from tests.support.boards.measuring import SMALL
from tests.support.boards.windows import SteadyMeter, record, trial


@pytest.mark.parametrize("after", [1_470_000, 1_530_000])
def test_a_frequency_change_of_two_percent_is_allowed(after: int) -> None:
    assert trial(frequency_before_khz=1_500_000, frequency_after_khz=after).void is None
    beyond = after + (1 if after > 1_500_000 else -1)
    found = trial(frequency_before_khz=1_500_000, frequency_after_khz=beyond)
    assert found.void == f"the frequency went from 1500000 to {beyond} kHz"


@pytest.mark.parametrize("share", [0.0, 0.05, 0.10])
def test_other_programs_may_use_a_tenth_of_a_window(share: float) -> None:
    running_ns = round(1_000_000 * (1 - share))
    assert trial(meter=SteadyMeter(), running_ns=running_ns).void is None


def test_more_than_a_tenth_for_other_programs_voids_measured_windows_only() -> None:
    assert trial(meter=SteadyMeter(), running_ns=899_000).void is not None
    assert trial(meter=SteadyMeter(), running_ns=899_000, is_measured=False).void is None


@pytest.mark.parametrize(
    ("bits", "seen"),
    [
        # Present at the begin and absent at the end, and the other way round.
        ((0x00001, 0x00000), "under-voltage"),
        ((0x00000, 0x00001), "under-voltage"),
        ((0x10001, 0x10000), "under-voltage"),
        ((0x20002, 0x20000), "frequency capped"),
        ((0x00000, 0x80000), "temperature limit"),
        ((0x00000, 0x80008), "temperature limit"),
        ((0x00008, 0x00005), "under-voltage, throttled, temperature limit"),
        # Occurred since boot, but before the block.
        ((0x80000, 0x80000), None),
        ((0xF0000, 0xF0000), None),
        ((0xF0000, 0x00000), None),
        # Bits without a meaning.
        ((0x00010, 0x100000), None),
        # One of the two readings is missing.
        ((-1, 0x00000), None),
        ((-1, 0x10000), "under-voltage"),
        ((0x00004, -1), "throttled"),
    ],
)
def test_throttling_at_either_end_of_a_block_or_new_in_it_voids_windows(
    bits: tuple[int, int], seen: str | None
) -> None:
    assert trial(throttled=bits).void == (None if seen is None else f"the board reports {seen}")


def test_every_reason_that_voids_a_window_is_listed() -> None:
    found = trial(
        meter=SteadyMeter(Void("samples were lost")),
        throttled=(0, 1),
        running_ns=500_000,
        frequency_before_khz=1000,
        frequency_after_khz=2000,
    )
    assert found.void == (
        "the board reports under-voltage; the frequency went from 1000 to 2000 kHz;"
        " other programs had the processor for 50% of the window; samples were lost"
    )
    assert found.energy_j is None


@pytest.mark.parametrize(
    "changes", [{"executions": 0}, {"executions": -1}, {"end_ns": 1_000_000}, {"end_ns": 999_999}]
)
def test_a_record_of_no_execution_or_no_time_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(MeasurementInvalid, match="the window's record is invalid"):
        trial(**changes)


def test_a_record_of_one_execution_in_a_nanosecond_is_valid() -> None:
    assert trial(executions=1, end_ns=1_000_001, running_ns=1).time_s == pytest.approx(1e-9)


def test_the_energy_of_a_transfer_includes_its_tail() -> None:
    meter = SteadyMeter(0.25)
    found = trial(TransferWindow("write", 4096, 1), meter, tail_end_ns=7_000_000)
    assert meter.asked == [(1_000_000, 7_000_000)]
    assert found.energy_j == 0.25


def test_an_operation_that_draws_negative_power_has_no_energy() -> None:
    found = trial(OpWindow(SMALL, "warm"), SteadyMeter(-0.25))
    assert found.void is not None
    assert "reads negative power: the inputs of its sensor are exchanged" in found.void
    assert found.energy_j is None


def test_a_transfer_at_negative_power_keeps_its_time() -> None:
    found = trial(TransferWindow("write", 4096, 1), SteadyMeter(-0.25))
    assert (found.void, found.energy_j) == (None, None)


def test_a_board_that_sleeps_below_the_meters_zero_draws_nothing() -> None:
    found = trial(IdleWindow("before"), SteadyMeter(-1e-6))
    assert found.void is None
    header = HarnessRunHeader(block=0, sitting=0, started="", duration_s=1.0, boot_id="b")
    table = TrialTable.of([HarnessRun(header=header, trials=(found,))])
    assert table.idle_power_w() == {0: 0.0}


def test_a_trial_has_the_values_of_its_record() -> None:
    found = trial(IdleWindow("before"), temperature_mc=41_000, tries=3, running_ns=900_000)
    assert (found.start_ns, found.end_ns, found.tail_end_ns) == (1_000_000, 2_000_000, 2_000_000)
    assert (found.temperature_mc, found.tries, found.running_ns) == (41_000, 3, 900_000)
    assert (found.throttled, found.cooling, found.energy_j) == (None, None, None)


def test_throttling_and_cooling_states_are_kept_with_the_trial() -> None:
    (found,) = evaluate(
        [WindowRecord(**vars(record()) | {"throttled": 0, "cooling": 0})],
        [IdleWindow("before")],
        None,
        is_measured=False,
        start=Health("b", 0, 0, throttled=0, cooling=0),
        throttled=None,
    )
    assert (found.throttled, found.cooling, found.void) == (0, 0, None)


def test_what_hindered_a_whole_run_voids_its_windows() -> None:
    (found,) = evaluate(
        [record()],
        [IdleWindow("before")],
        None,
        is_measured=False,
        start=None,
        throttled=None,
        hindrance="the governor was not held",
    )
    assert found.void == "the governor was not held"


def test_cooling_before_the_first_window_voids_it() -> None:
    (found,) = evaluate(
        [WindowRecord(**vars(record()) | {"cooling": 0})],
        [IdleWindow("before")],
        None,
        is_measured=False,
        start=Health("b", 0, 0, cooling=1),
        throttled=None,
    )
    assert found.void == "the processor was slowed down to cool it"

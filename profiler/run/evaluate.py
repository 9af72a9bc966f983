"""Turn the records of a harness run into trials: energy of each window, and which ones are void."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from devices.errors import MeasurementInvalid
from profiler.meters.base import NEGATIVE_POWER, PowerTrace, Reading, Void
from profiler.run.trials import Trial
from profiler.script.records import Health, WindowRecord
from profiler.script.transfers import TransferWindow
from profiler.script.windows import IdleWindow, OpWindow, StepWindow, Window

FREQUENCY_TOLERANCE = 0.02

PREEMPTION_LIMIT = 0.10
"""Largest preempted share of a window whose energy is used. A meter also sees what other programs
do, so beyond this share the energy is not the operation's. The time is still used, since it
excludes preemption."""

# Bits of `vcgencmd get_throttled`: present conditions, and 16 places higher those that occurred
# since boot (Raspberry Pi documentation).
_THROTTLE_BITS = {
    0: "under-voltage",
    1: "frequency capped",
    2: "throttled",
    3: "temperature limit",
}
_SINCE_BOOT = 16

_UNKNOWN = -1


def evaluate(
    records: Sequence[WindowRecord],
    windows: Sequence[Window],
    trace: PowerTrace | None,
    *,
    is_measured: bool,
    start: Health | None,
    throttled: tuple[int, int] | None,
    hindrance: str | None = None,
) -> tuple[Trial, ...]:
    """Make a trial of each window record of a harness run.

    Args:
        records: What the harness recorded, one per finished window.
        windows: The windows of the plan, by record id.
        trace: Power during the harness run; None without a meter.
        is_measured: Whether the trace comes from an instrument, not from a nominal power.
        start: State of the board when the run began; None if it was not recorded.
        throttled: Raspberry Pi's throttling bits before and after the run, for boards that do not
            report them window by window.
        hindrance: Why no window counts; None if they do.

    Returns:
        One trial per record. Void trials carry their reason.

    Raises:
        MeasurementInvalid: A record has no executions or ends before it starts.
    """
    before = start.throttled if start is not None else _UNKNOWN
    cooling = start.cooling if start is not None else _UNKNOWN
    trials = []
    for record in records:
        bits = throttled if record.throttled == _UNKNOWN else (before, record.throttled)
        hindrances = [] if hindrance is None else [hindrance]
        hindrances += [*_throttling(bits), *_cooling(cooling, record.cooling)]
        trials.append(_trial(record, windows[record.id], trace, is_measured, hindrances))
        before, cooling = record.throttled, record.cooling
    return tuple(trials)


def _trial(
    record: WindowRecord,
    window: Window,
    trace: PowerTrace | None,
    is_measured: bool,
    hindrances: Sequence[str],
) -> Trial:
    if record.executions < 1 or record.end_ns <= record.start_ns:
        raise MeasurementInvalid(f"{window.label}: the window's record is invalid")
    trial = Trial(
        window=window.label,
        executions=record.executions,
        start_ns=record.start_ns,
        end_ns=record.end_ns,
        tail_end_ns=record.tail_end_ns,
        running_ns=record.running_ns,
        frequency_before_khz=record.frequency_before_khz,
        frequency_after_khz=record.frequency_after_khz,
        temperature_mc=record.temperature_mc,
        tries=record.tries,
        throttled=None if record.throttled == _UNKNOWN else record.throttled,
        cooling=None if record.cooling == _UNKNOWN else record.cooling,
    )
    reading = None if trace is None else _reading(record, window, trace)
    # A sleeping board draws less than the zero of some meters is off.
    if isinstance(reading, float) and reading < 0 and not isinstance(window, IdleWindow):
        reading = Void(NEGATIVE_POWER)
    reasons = [*hindrances, *_disturbances(trial)]
    if is_measured and isinstance(window, OpWindow | StepWindow):
        reasons.extend(_preemption(trial))
    energy_void = None
    if isinstance(reading, Void):
        # The time of a transfer that is too short for the meter is still valid.
        if isinstance(window, TransferWindow):
            energy_void = reading.reason
        else:
            reasons.append(reading.reason)
    return trial.model_copy(
        update={
            "energy_j": None if isinstance(reading, Void) else reading,
            "energy_void": energy_void,
            "void": "; ".join(reasons) or None,
        }
    )


def _reading(record: WindowRecord, window: Window, trace: PowerTrace) -> Reading:
    """Energy of a window with its tail. Only a window that repeats one thing, without a tail, has a
    steady power."""
    start_ns, end_ns = record.start_ns, record.tail_end_ns
    if isinstance(window, StepWindow) or end_ns > record.end_ns:
        return trace.energy_j(start_ns, end_ns)
    return trace.steady_energy_j(start_ns, end_ns)


def _disturbances(trial: Trial) -> Iterator[str]:
    before, after = trial.frequency_before_khz, trial.frequency_after_khz
    if abs(after - before) > FREQUENCY_TOLERANCE * before:
        yield f"the frequency went from {before} to {after} kHz"


def _preemption(trial: Trial) -> Iterator[str]:
    if trial.preempted_share > PREEMPTION_LIMIT:
        yield f"other programs had the processor for {trial.preempted_share:.0%} of the window"


def _throttling(bits: tuple[int, int] | None) -> Iterator[str]:
    """Conditions that held before or after the run, or that first occurred during it."""
    if bits is None:
        return
    before, after = (max(word, 0) for word in bits)
    new_since_boot = (after & ~before) >> _SINCE_BOOT
    seen = before | after | new_since_boot
    names = [name for bit, name in _THROTTLE_BITS.items() if seen >> bit & 1]
    if names:
        yield f"the board reports {', '.join(names)}"


def _cooling(before: int, after: int) -> Iterator[str]:
    if max(before, after) > 0:
        yield "the processor was slowed down to cool it"

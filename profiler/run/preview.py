"""Preview of a profile: what it measures, how long it takes and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from devices.description import DeviceDescription
from devices.documents.readable import si
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from devices.profile import CacheState, MeterRecord
from profiler.boards.raw_flash import require_overwritable, scratch_place
from profiler.meters.least_window import least_window_s
from profiler.run.options import ProfileOptions
from profiler.script.transfers import (
    LARGEST_TRANSFER_BYTES,
    Scratch,
    TransferWindow,
    plan_transfers,
)
from profiler.script.windows import (
    CACHE_STATES,
    BlockContent,
    IdleWindow,
    OpWindow,
    StepWindow,
    Window,
)
from profiler.script.writer import ALIGNMENT

# Guesses for use before the first measurement: about a third of the peak of one core's vector unit,
# a modest memory bandwidth, and the overhead of every window (filling operands, calibration).
_FLOP_PER_CYCLE = {
    "x86_64": 10.0,
    "aarch64": 2.5,
    "armv7": 1.2,
    "armv8-m": 0.3,
    "armv7e-m": 0.3,
    "armv7-m": 0.03,
    "armv6-m": 0.02,
}
_FLOP_PER_S = 30e9  # without a description of the processor
_BYTES_PER_S = 3e9
_OVERHEAD_S = 0.02
_BUILD_S = 10.0

# Share of the described memory; the rest is for other programs on the board.
_ARENA_SHARE = 0.5


@dataclass(frozen=True)
class StoragePlan:
    """What a profile overwrites, and the most that it writes if no window is repeated.

    With repeated windows it stays within ``budget_bytes`` and within the share of
    ``endurance_cycles`` that a profile may use. For flash with erase blocks, ``written_bytes`` is
    the size of all erased blocks, and ``cycles`` counts the erasures of the block that is erased
    most often.
    """

    place: str
    written_bytes: int
    budget_bytes: int
    erased_blocks: int
    cycles: int
    endurance_cycles: int | None


@dataclass(frozen=True)
class ProfilePlan:
    """Extent of a profile. ``storage`` is None where storage is not measured."""

    operations: int
    blocks: int
    windows_per_block: int
    estimated_s: float
    storage: StoragePlan | None


def plan_profile(
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    step: ExecutionPlan | None,
    options: ProfileOptions,
) -> ProfilePlan:
    """Preview a profile without reaching the board.

    Args:
        description: The board.
        specs: Operations to measure.
        step: Whole training step to measure; None for none.
        options: How to measure.

    Raises:
        RequestRefused: As for :func:`block_content`.
    """
    content = block_content(description, specs, step, options)
    windows = content.ordered(options.seed, 0)
    per_block_s = sum(guess_s(window, step, description, options) for window in windows)
    return ProfilePlan(
        operations=len(content.specs),
        blocks=options.blocks,
        windows_per_block=len(windows),
        estimated_s=_BUILD_S + options.blocks * per_block_s,
        storage=_storage_plan(description, content, options),
    )


def block_content(
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    step: ExecutionPlan | None,
    options: ProfileOptions,
    arena_bytes: int | None = None,
) -> BlockContent:
    """Windows of one block: every distinct operation of ``specs`` and ``step`` once, and transfers.

    Transfers are limited by the described memory and, once it is known, by the board's
    ``arena_bytes``.

    Raises :class:`~devices.errors.RequestRefused` for raw flash that the options do not allow to
    overwrite, for a write budget or an endurance that is too small, and where too few transfer
    sizes fit.
    """
    of_step = () if step is None else tuple(op.spec.costed_as for op in step.computes)
    storage = description.storage
    transfers: tuple[TransferWindow, ...] = ()
    scratch: Scratch | None = None
    if options.storage and storage is not None:
        require_overwritable(description.name, storage, options.overwrite_raw_flash)
        scratch = Scratch.of(storage, options.storage_budget_bytes)
        transfers = plan_transfers(
            scratch,
            blocks=options.blocks,
            memory_bytes=_transfer_memory_bytes(description, arena_bytes),
        )
    return BlockContent(
        specs=tuple(dict.fromkeys((*specs, *of_step))),
        step_windows=0 if step is None else options.step_windows,
        transfers=transfers,
        states=_states(description),
        scratch=scratch,
    )


def _transfer_memory_bytes(description: DeviceDescription, arena_bytes: int | None) -> int:
    """Largest size of one transfer, in whole lines of the arena."""
    limits = [LARGEST_TRANSFER_BYTES]
    if description.memory is not None:
        limits.append(int(_ARENA_SHARE * description.memory.usable_bytes))
    if arena_bytes is not None:
        limits.append(arena_bytes)
    return min(limits) // ALIGNMENT * ALIGNMENT


def _storage_plan(
    description: DeviceDescription, content: BlockContent, options: ProfileOptions
) -> StoragePlan | None:
    storage, scratch = description.storage, content.scratch
    if storage is None or scratch is None:
        return None
    wear = scratch.wear(content.transfers).times(options.blocks)
    return StoragePlan(
        place=scratch_place(storage, scratch.bytes),
        written_bytes=wear.written_bytes,
        budget_bytes=scratch.budget_bytes,
        erased_blocks=wear.erased_blocks,
        cycles=wear.cycles,
        endurance_cycles=scratch.endurance_cycles,
    )


def _states(description: DeviceDescription) -> tuple[CacheState, ...]:
    """States of the caches in which operations are measured: one on a board without any."""
    processor = description.processor
    has_no_cache = processor is not None and processor.data_cache_bytes == 0
    return ("warm",) if has_no_cache else CACHE_STATES


def options_with(
    meter: MeterRecord | None, description: DeviceDescription, options: ProfileOptions
) -> ProfileOptions:
    """Options whose windows and settling times also suffice for the open meter."""
    if description.meter is None or meter is None:
        return options
    least_s = least_window_s(description.meter, meter.remembered_s)
    return replace(
        options,
        min_window_s=max(options.min_window_s, least_s),
        settle_s=max(options.settle_s, least_s),
    )


def window_s(description: DeviceDescription, options: ProfileOptions) -> float:
    """Least length of a window that suffices for the clock and the meter."""
    if description.meter is None:
        return options.min_window_s
    return max(options.min_window_s, least_window_s(description.meter))


def tail_s(description: DeviceDescription, options: ProfileOptions) -> float:
    """Time for which the meter watches a medium settle after a transfer; 0 without a meter."""
    if description.meter is None:
        return 0.0
    return max(options.settle_s, least_window_s(description.meter))


def idle_s(description: DeviceDescription, options: ProfileOptions) -> float:
    return max(options.idle_s, window_s(description, options))


def operation_s(spec: OpSpec, description: DeviceDescription, options: ProfileOptions) -> float:
    """Guess of the time in which all blocks measure one operation."""
    states = _states(description)
    return options.blocks * sum(
        guess_s(OpWindow(spec, state), None, description, options) for state in states
    )


def guess_s(
    window: Window,
    step: ExecutionPlan | None,
    description: DeviceDescription,
    options: ProfileOptions,
) -> float:
    """Guess of the time that a window takes, including its overhead."""
    least_s = window_s(description, options)
    match window:
        case OpWindow(spec):
            return _OVERHEAD_S + max(least_s, 2 * guessed_execution_s(spec, description))
        case StepWindow():
            ops = () if step is None else step.computes
            once_s = sum(guessed_execution_s(op.spec, description) for op in ops)
            return _OVERHEAD_S + max(least_s, 2 * once_s)
        case TransferWindow():
            return least_s + 2 * tail_s(description, options)
        case IdleWindow():
            return idle_s(description, options)


def guessed_execution_s(spec: OpSpec, description: DeviceDescription) -> float:
    """Guess of the time of one execution, before anything is measured."""
    return spec.work_flop / _flop_per_s(description) + spec.moved_bytes / _BYTES_PER_S


def guessed_rate(description: DeviceDescription) -> str:
    """The rate of such a guess, in words."""
    rate = si(_flop_per_s(description), "FLOP/s", 3)
    processor = description.processor
    if processor is None:
        return f"{rate} (no processor is described)"
    return f"{rate} of {processor.architecture} at {si(processor.clock_hz, 'Hz')}"


def _flop_per_s(description: DeviceDescription) -> float:
    processor = description.processor
    if processor is None:
        return _FLOP_PER_S
    return _FLOP_PER_CYCLE[processor.architecture] * processor.clock_hz

"""What a profile would measure, how long it would take and what it would write: before anything
is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from devices.description import DeviceDescription
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from profiler.meters.least_window import least_window_s
from profiler.options import ProfileOptions
from profiler.windows import (
    CACHE_STATES,
    BlockContent,
    IdleWindow,
    OpWindow,
    StepWindow,
    TransferWindow,
    Window,
    plan_transfers,
    written_bytes,
)

# Guesses, for the time before there are measurements: about a third of what one core's vector unit
# can do at best, a modest memory, and what comes with every window (operands filled, calibration).
_FLOP_PER_CYCLE = {
    "x86_64": 10.0,
    "aarch64": 2.5,
    "armv7": 1.2,
    "armv8-m": 0.3,
    "armv7e-m": 0.3,
    "armv7-m": 0.03,
    "armv6-m": 0.02,
}
_FLOP_PER_S = 30e9  # of a computer that is not described
_BYTES_PER_S = 3e9
_OVERHEAD_S = 0.02
_BUILD_S = 10.0


@dataclass(frozen=True)
class ProfilePlan:
    """``written_bytes`` is the most that an undisturbed profile writes to storage; with windows
    repeated it stays within ``storage_budget_bytes`` (0: storage is not measured)."""

    operations: int
    blocks: int
    windows_per_block: int
    estimated_s: float
    storage_path: str | None
    written_bytes: int
    storage_budget_bytes: int


def plan_profile(
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    step: ExecutionPlan | None,
    options: ProfileOptions,
) -> ProfilePlan:
    """Reaches no board. Raises :class:`~profiler.errors.ProfilerError` for a byte budget that is
    too small."""
    content = block_content(description, specs, step, options)
    windows = content.ordered(options.seed, 0)
    per_block_s = sum(guess_s(window, step, description, options) for window in windows)
    storage = description.storage
    return ProfilePlan(
        operations=len(content.specs),
        blocks=options.blocks,
        windows_per_block=len(windows),
        estimated_s=_BUILD_S + options.blocks * per_block_s,
        storage_path=storage.path if storage is not None and content.transfers else None,
        written_bytes=options.blocks * written_bytes(windows),
        storage_budget_bytes=options.storage_budget_bytes if content.transfers else 0,
    )


def block_content(
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    step: ExecutionPlan | None,
    options: ProfileOptions,
) -> BlockContent:
    """Every distinct operation once, those of the step among them."""
    of_step = () if step is None else tuple(op.spec for op in step.ops)
    storage = description.storage
    transfers: tuple[TransferWindow, ...] = ()
    if options.storage and storage is not None and storage.path is not None:
        transfers = plan_transfers(
            storage, budget_bytes=options.storage_budget_bytes, blocks=options.blocks
        )
    return BlockContent(
        specs=tuple(dict.fromkeys((*specs, *of_step))),
        step_windows=0 if step is None else options.step_windows,
        transfers=transfers,
        states=("warm",) if _has_no_cache(description) else CACHE_STATES,
    )


def _has_no_cache(description: DeviceDescription) -> bool:
    processor = description.processor
    return processor is not None and processor.data_cache_bytes == 0


def window_s(description: DeviceDescription, options: ProfileOptions) -> float:
    """The least length of a window: enough for the clock and for the meter."""
    if description.meter is None:
        return options.min_window_s
    return max(options.min_window_s, least_window_s(description.meter))


def tail_s(description: DeviceDescription, options: ProfileOptions) -> float:
    """How long the meter watches a medium settle; nothing without a meter to watch."""
    if description.meter is None:
        return 0.0
    return max(options.settle_s, least_window_s(description.meter))


def idle_s(description: DeviceDescription, options: ProfileOptions) -> float:
    return max(options.idle_s, window_s(description, options))


def guess_s(
    window: Window,
    step: ExecutionPlan | None,
    description: DeviceDescription,
    options: ProfileOptions,
) -> float:
    """How long a window takes, with what comes with it."""
    least_s = window_s(description, options)
    match window:
        case OpWindow(spec):
            return _OVERHEAD_S + max(least_s, 2 * _execution_s(spec, description))
        case StepWindow():
            ops = () if step is None else step.ops
            once_s = sum(_execution_s(op.spec, description) for op in ops)
            return _OVERHEAD_S + max(least_s, 2 * once_s)
        case TransferWindow():
            return least_s + tail_s(description, options)
        case IdleWindow():
            return idle_s(description, options)


def _execution_s(spec: OpSpec, description: DeviceDescription) -> float:
    processor = description.processor
    flop_per_s = _FLOP_PER_S
    if processor is not None:
        flop_per_s = _FLOP_PER_CYCLE[processor.architecture] * processor.clock_hz
    return spec.work_flop / flop_per_s + spec.moved_bytes / _BYTES_PER_S

"""Write the harness's plan: windows, their operands, and where a step's tensors lie.

The format is documented in ``harness/plan.h`` and ``harness/linux/linux_main.c``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from devices.errors import MeasurementInvalid
from devices.operation import Operand, OpSpec
from devices.plan import ExecutionPlan
from profiler.meters.base import MarkerPattern, SamplerSpec
from profiler.script.transfers import TransferWindow
from profiler.script.windows import IdleWindow, OpWindow, StepWindow, Window

MARKER_IDS = (900_000_000, 900_000_001)
"""Record ids of the markers before and after a block, beyond those of all windows."""

_SETTLING_ID = 900_000_002
"""Record id of settling periods, whose records are ignored."""

_FIRST_LINE = "joulewright-plan 1"
ALIGNMENT = 64
"""Alignment of everything in the harness's arena, in bytes."""

_NS_PER_S = 1e9

COLD_CACHES = 2
"""Size of the operand copies that cold executions use, in multiples of the last-level cache."""

_WINDOW_TRIES = 2
_MOST_TIMES_MIN_WINDOW = 4

# Sizes of the harness's tables for a step; generous, since they are small beside the tensors.
_BYTES_PER_CALL = 1024
_BYTES_PER_BUFFER = 256

# Scalars that operations are measured with. The learning rate is 0, so that every execution
# computes the same numbers, and none drifts to values with slow arithmetic.
_SCALARS = {
    "addend": 0.5,
    "alpha": 1.0,
    "column_distance": 0.5,
    "epsilon": 1e-5,
    "factor": 0.5,
    "highest": 0.5,
    "ignored": -100.0,
    "learning_rate": 0.0,
    "first_rate": 0.1,
    "second_rate": 0.001,
    "weight_decay": 0.0,
    "gradient_decay": 0.0,
    "lowest": -0.5,
    "momentum": 0.9,
    "number": 1.0,
    "probability": 0.5,
    "row_distance": 0.5,
    "scale": 0.125,
    "seed": 1.0,
    "share": 1.0,
    "slope": 0.01,
    "smoothing": 0.1,
}


@dataclass(frozen=True)
class Memory:
    """Memory of a board for measuring. ``workspace_bytes`` is the kernels' own need."""

    arena_limit_bytes: int
    last_level_cache_bytes: int
    workspace_bytes: Mapping[OpSpec, int]


@dataclass(frozen=True)
class SyncLine:
    """A GPIO line of a Linux board."""

    chip: str
    line: int


@dataclass(frozen=True)
class Settings:
    """Settings of a plan.

    Attributes:
        min_window_s: Least length of a window.
        idle_s: Length of an idle window.
        tail_s: Settling time of a medium after a write or erase, and of a sensor before an idle
            window.
        first_executions: Executions that earlier blocks needed for a window, by label.
        sampler: Samples that the harness takes for the meter; None for none.
        storage_place: The board's name for the stretch of storage that may be overwritten.
        scratch_bytes: Size of that stretch.
        marker: Pattern that the board plays before and after the block; None for none.
        sync_line: GPIO line that is high during windows; None for none.
    """

    min_window_s: float
    idle_s: float
    tail_s: float
    first_executions: Mapping[str, int]
    sampler: SamplerSpec | None
    storage_place: str | None
    scratch_bytes: int = 0
    marker: MarkerPattern | None = None
    sync_line: SyncLine | None = None


@dataclass(frozen=True)
class PlanFile:
    """Text of a plan. ``windows[id]`` is the window of the record with that id."""

    text: str
    windows: tuple[Window, ...]


def write_plan(
    windows: Sequence[Window], step: ExecutionPlan | None, memory: Memory, settings: Settings
) -> PlanFile:
    """Write the plan of these windows. Raises :class:`~devices.errors.MeasurementInvalid` if a
    window does not fit into the board's memory."""
    writer = _Writer(step, memory, settings)
    body = [line for id_, window in enumerate(windows) for line in writer.lines(id_, window)]
    arena_bytes = max((writer.arena_bytes(window) for window in windows), default=ALIGNMENT)
    head: list[str] = []
    if any(isinstance(window, TransferWindow) for window in windows):
        head.append(f"scratch bytes={settings.scratch_bytes} {settings.storage_place}")
    return PlanFile(plan_text(arena_bytes, head, body, settings), tuple(windows))


def plan_text(
    arena_bytes: int, head: Sequence[str], body: Sequence[str], settings: Settings
) -> str:
    """Text of a plan, with the memory that it needs and the meter's lines.

    Args:
        arena_bytes: Size of the arena.
        head: Lines before the measurement.
        body: Lines that measure.
        settings: Settings of the plan.
    """
    lines = [_FIRST_LINE, f"arena bytes={arena_bytes}", f"tries count={_WINDOW_TRIES}"]
    if settings.sampler is not None:
        lines.extend(f"register {setting}" for setting in settings.sampler.setup)
        lines.append(f"sampler period_ns={round(_NS_PER_S / settings.sampler.rate_hz)}")
        lines.extend(f"sample {source}" for source in settings.sampler.sources)
    if settings.sync_line is not None:
        lines.append(f"sync chip={settings.sync_line.chip} line={settings.sync_line.line}")
    lines.extend(head)
    if settings.marker is None:
        lines.extend(body)
    else:
        before, after = (_marker(id_, settings.marker) for id_ in MARKER_IDS)
        lines.extend([before, *body, after])
    return "\n".join([*lines, "end\n"])


def workspace_query(specs: Sequence[OpSpec]) -> str:
    """A plan that asks the harness for the workspace of its kernels."""
    lines = [f"kernel kind={spec.kind} attributes={_numbers(spec.values)}" for spec in specs]
    return "\n".join([_FIRST_LINE, *lines, "end\n"])


def cold_copies(spec: OpSpec, memory: Memory) -> int:
    """Number of operand copies of a cold window: enough to exceed the caches, or as many as memory
    holds."""
    copy_bytes = operand_bytes(spec)
    wanted = math.ceil(COLD_CACHES * memory.last_level_cache_bytes / copy_bytes)
    room = memory.arena_limit_bytes - _aligned(memory.workspace_bytes[spec])
    return max(1, min(wanted, room // copy_bytes))


def operand_bytes(spec: OpSpec) -> int:
    """Size of one copy of the operands in the harness's layout.

    Args:
        spec: The operation.
    """
    written = [write for write in spec.writes if write.role not in _in_place(spec)]
    return sum(_aligned(operand.bytes) for operand in (*spec.reads, *written))


def fits(spec: OpSpec, memory: Memory) -> bool:
    """Whether an operation can be measured in this memory."""
    needed = operand_bytes(spec) + _aligned(memory.workspace_bytes[spec])
    return needed <= memory.arena_limit_bytes


def step_bytes(step: ExecutionPlan, memory: Memory) -> int:
    """Memory for running a whole step with every tensor in memory."""
    return (
        sum(_aligned(size) + _BYTES_PER_BUFFER for size in step.buffer_bytes.values())
        + len(step.computes) * _BYTES_PER_CALL
        + max(_aligned(memory.workspace_bytes[op.spec]) for op in step.computes)
    )


@dataclass(frozen=True)
class _Writer:
    step: ExecutionPlan | None
    memory: Memory
    settings: Settings

    def lines(self, id_: int, window: Window) -> Iterator[str]:
        match window:
            case OpWindow():
                yield self._op(id_, window)
            case StepWindow():
                yield from self._step(id_, window)
            case IdleWindow():
                yield from idle_lines(id_, self.settings)
            case TransferWindow():
                yield self._transfer(id_, window)

    def arena_bytes(self, window: Window) -> int:
        """Memory that a window needs. Raises :class:`~devices.errors.MeasurementInvalid` beyond the
        board's limit."""
        match window:
            case OpWindow(spec):
                needed = _aligned(self.memory.workspace_bytes[spec])
                needed += operand_bytes(spec) * self._copies(window)
                what = spec.key
            case StepWindow():
                needed = step_bytes(self._known_step, self.memory)
                what = f"a whole step of {self._known_step.name}"
            case TransferWindow(method="read" | "write" | "write-buffered", bytes=size):
                needed, what = _aligned(size), window.label
            case _:
                return ALIGNMENT
        if needed > self.memory.arena_limit_bytes:
            raise MeasurementInvalid(
                f"{what} needs {needed} bytes; {self.memory.arena_limit_bytes} bytes of the"
                " board's memory are free for measuring, and all operands of an operation must fit."
                " Choose a smaller batch, or a smaller network"
            )
        return needed

    @property
    def _known_step(self) -> ExecutionPlan:
        if self.step is None:
            raise ValueError("a step window needs a step")
        return self.step

    def _copies(self, window: OpWindow) -> int:
        return 1 if window.state == "warm" else cold_copies(window.spec, self.memory)

    def _limits(self, window: Window) -> str:
        min_ns = _ns(self.settings.min_window_s)
        first = self.settings.first_executions.get(window.label, 0)
        return f"first={first} min_ns={min_ns} max_ns={_MOST_TIMES_MIN_WINDOW * min_ns}"

    def _op(self, id_: int, window: OpWindow) -> str:
        spec = window.spec
        roles = [operand.role for operand in spec.reads]
        in_place = _in_place(spec)
        writes = [
            f"@{roles.index(in_place[write.role])}" if write.role in in_place else str(write.bytes)
            for write in spec.writes
        ]
        return (
            f"op id={id_} copies={self._copies(window)} {self._limits(window)} kind={spec.kind}"
            f" attributes={_numbers(spec.values)} scalars={_scalars(spec, _SCALARS)}"
            f" reads={','.join(f'{read.bytes}:{_fill(read)}' for read in spec.reads)}"
            f" writes={','.join(writes)}"
        )

    def _step(self, id_: int, window: StepWindow) -> Iterator[str]:
        step = self._known_step
        index = {address: number for number, address in enumerate(step.buffer_bytes)}
        initial = _initial_contents(step)
        calls = len(step.computes)
        yield f"step id={id_} {self._limits(window)} buffers={len(index)} calls={calls}"
        for address, size in step.buffer_bytes.items():
            yield f"buffer bytes={size} fill={initial.get(address, 'zero')}"
        for op in step.computes:
            # Without learning, as above: every execution of the step computes the same numbers.
            scalars = {**_SCALARS, **op.scalars, "learning_rate": 0.0}
            yield (
                f"call kind={op.spec.kind} attributes={_numbers(op.spec.values)}"
                f" scalars={_scalars(op.spec, scalars)}"
                f" reads={_numbers([index[address] for address in op.reads])}"
                f" writes={_numbers([index[address] for address in op.writes])}"
            )

    def _transfer(self, id_: int, window: TransferWindow) -> str:
        tail_ns = 0 if window.method == "read" else _ns(self.settings.tail_s)
        return (
            f"transfer id={id_} method={window.method} bytes={window.bytes} most={window.most}"
            f" min_ns={_ns(self.settings.min_window_s)} tail_ns={tail_ns}"
        )


def idle_lines(id_: int, settings: Settings) -> Iterator[str]:
    """Lines of an idle window, after the settling time.

    Args:
        id_: Record id of the window.
        settings: Settings of the plan.
    """
    if settings.tail_s:
        # The readings of an averaging sensor still contain the window before.
        yield f"idle id={_SETTLING_ID} duration_ns={_ns(settings.tail_s)}"
    yield f"idle id={id_} duration_ns={_ns(settings.idle_s)}"


def _marker(id_: int, pattern: MarkerPattern) -> str:
    bits = "".join("1" if busy else "0" for busy in pattern.bits)
    return f"marker id={id_} bit_ns={_ns(pattern.bit_s)} bits={bits}"


def _in_place(spec: OpSpec) -> Mapping[str, str]:
    """Roles that share a buffer. Operations that change or continue an operand are measured in
    place, all others with separate operands."""
    signature = spec.signature
    return spec.in_place if signature.mutates or signature.continues else {}


def _initial_contents(step: ExecutionPlan) -> dict[int, str]:
    """Fill of every buffer that is read before it is written, by its address."""
    fills: dict[int, str] = {}
    written: set[int] = set()
    for op in step.computes:
        for address, operand in zip(op.reads, op.spec.reads, strict=True):
            if address not in written:
                fills.setdefault(address, _fill(operand, _weight_amplitude(operand)))
        written.update(op.writes)
    return fills


def _weight_amplitude(operand: Operand) -> float:
    """Amplitude of weights that keeps the size of activations from layer to layer. It prevents
    overflow in a deep network (uniform variant of He et al. 2015)."""
    if operand.role != "weight":
        return 1.0
    fan_in = math.prod(operand.shape[1:])
    return math.sqrt(6.0 / fan_in)


def _fill(operand: Operand, amplitude: float = 1.0) -> str:
    match operand.fill:
        case "signed":
            return f"signed:{_float_bits(amplitude)}"
        case "positive":
            return "positive"
        case "index":
            return f"index:{operand.index_bound}"


def _scalars(spec: OpSpec, values: Mapping[str, float]) -> str:
    bits = [
        f"{int(values[name]):08x}" if name == "seed" else _float_bits(values[name])
        for name in spec.signature.scalars
    ]
    return ",".join(bits) or "-"


def _float_bits(value: float) -> str:
    return struct.pack(">f", value).hex()


def _numbers(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "-"


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _ns(seconds: float) -> int:
    return round(seconds * _NS_PER_S)

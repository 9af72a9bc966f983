"""Write a replay's script for the harness (``harness/replay.h``), and its data.

Tables with their home in storage pass through the arena in pieces.

The data are the initial values in the order of their names, followed by the batches: the same for
all plans of a training step, so that a board needs them only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from devices.description import Storage
from devices.documents.readable import size
from devices.errors import RequestRefused
from devices.operation import ELEMENT_BYTES
from devices.plan import ArenaRange, ExecutionPlan, Kept, Observed, Probe
from profiler.boards.plan_data import PlanData
from profiler.building.plan_memory import WATCHED_ACTIONS
from profiler.building.plan_source import scalar_bits
from profiler.building.store_layout import store_layout
from profiler.script.windows import IdleWindow, StepWindow, Window
from profiler.script.writer import ALIGNMENT, Settings, idle_lines, plan_text
from replay.frozen import frozen_key

Values: TypeAlias = Mapping[str, NDArray[np.float32] | NDArray[np.int32]]

MOST_SCRIPT_BYTES = 64 << 20
"""Size from which on a Linux board refuses a script (``linux_main.c``)."""


@dataclass(frozen=True)
class ReplayTarget:
    """A plan on a board, for which scripts are written.

    Firmware answers in pieces and has a fixed range of storage for replays; a Linux board pages to
    a file.

    Attributes:
        index: the plan's number in the board's program.
        plan: the plan.
        storage: the board's storage; None without one.
        settings: the harness's settings, with the place of the storage for a plan that pages.
        is_firmware: whether the board is a microcontroller.
    """

    index: int
    plan: ExecutionPlan
    storage: Storage | None
    settings: Settings
    is_firmware: bool

    def open_storage(self, *, anew: bool) -> list[str]:
        """The line that opens the storage; ``anew`` discards the steps of an earlier replay."""
        if not self.plan.pages or self.storage is None:
            return []
        place = self.settings.storage_place
        if self.is_firmware:
            return [f"scratch bytes={self.storage.scratch_bytes} {place}"]
        layout = store_layout(self.plan, self.storage)
        size, frozen = layout.file_bytes, layout.frozen_bytes
        return [f"store bytes={size} anew={int(anew)} frozen={frozen} {place}"]


@dataclass(frozen=True)
class Returned:
    """A value that the board returns.

    Attributes:
        what: ``kept``: a kept tensor after the last step; otherwise a value of one step.
        tensor: the tensor's name.
        bytes: its size.
    """

    what: Observed | Literal["kept"]
    tensor: str
    bytes: int


@dataclass(frozen=True)
class Script:
    """Script of a replay, and what its answers mean.

    Attributes:
        text: the lines for the harness.
        data: the bytes that ``load`` lines refer to.
        windows: the window of each record, by the record's id.
        returned: the values that the board returns, in this order.
    """

    text: str
    data: PlanData
    windows: tuple[Window, ...]
    returned: tuple[Returned, ...]

    def count(self, what: Observed | Literal["kept"]) -> int:
        """Number of values of this sort that the board returns."""
        return sum(each.what == what for each in self.returned)

    def losses(self, dumped: bytes) -> tuple[float, ...]:
        """Losses of the finished steps; empty if the plan has no loss."""
        return tuple(float(loss[0]) for _, loss in self._found(dumped, "loss"))

    def gradients(self, dumped: bytes) -> dict[str, NDArray[np.float32]]:
        """Gradients of the last step, flat, by parameter; empty if they were not asked for."""
        return dict(self._found(dumped, "gradient"))

    def predictions(self, dumped: bytes) -> tuple[NDArray[np.float32], ...]:
        """Predictions of the finished steps of an evaluation, flat."""
        return tuple(values for _, values in self._found(dumped, "prediction"))

    def values(self, dumped: bytes) -> dict[str, NDArray[np.float32]]:
        """Values of the kept tensors whose bytes are complete, flat, by name."""
        return dict(self._found(dumped, "kept"))

    def _found(
        self, dumped: bytes, what: Observed | Literal["kept"]
    ) -> Iterator[tuple[str, NDArray[np.float32]]]:
        begin = 0
        for each in self.returned:
            content = dumped[begin : begin + each.bytes]
            if len(content) < each.bytes:
                return
            if each.what == what:
                yield each.tensor, np.frombuffer(content, dtype="<f4")
            begin += each.bytes


def training_script(
    target: ReplayTarget,
    initial: Values,
    batches: Sequence[Values],
    *,
    steps: int,
    watched: bool,
    gradients: bool = False,
    rates: Sequence[float] | None = None,
    steps_before: int = 0,
) -> Script:
    """Write the script of a training run.

    The board returns the loss after each step and all kept values at the end, and then clears the
    storage, unless it holds frozen values, which the next run needs again. Counters are read before
    the first step and after the last. The board is idle for ``settings.idle_s`` before and after
    the steps, for the meter.

    Args:
        target: the plan on its board.
        initial: initial value of each parameter and each kept tensor; of a table, with all rows.
        batches: the plan's other inputs; used in order, from the first again after the last.
        steps: number of steps.
        watched: whether each step returns its checksums and spans.
        gradients: whether the last step returns its gradients; a Linux board can.
        rates: learning rates of the steps, of which the last holds for all later ones; None for
            that of the plan.
        steps_before: steps of earlier runs, after which the seeds of dropout go on.

    Raises:
        RequestRefused: there are more steps than a board reads at a time.
        ValueError: values are missing, or differ in size from the plan's.
    """
    plan = target.plan
    writer = _Writer(target)
    writer.place(initial)
    after = [f"after steps={steps_before}"] if steps_before else []
    lines = [*writer.initial(initial), *after, "counters"]
    # Parameters in RAM that no step changes are inputs of the plan too.
    placed = [
        writer.places(plan.inputs, {**initial, **batch}, f"batch {i}")
        for i, batch in enumerate(batches)
    ]
    if not placed:
        raise ValueError(f"{plan.name}: there is no batch to train on")
    results = [probe for probe in plan.probes if probe.what in {"loss", "prediction"}]
    windows: list[Window] = [*map(StepWindow, range(steps))]
    if target.settings.idle_s:
        windows = [IdleWindow("before"), *windows, IdleWindow("after")]
    for id_, window in enumerate(windows):
        if isinstance(window, StepWindow):
            lines += placed[window.index % len(placed)]
            if rates is not None:
                rate = rates[min(window.index, len(rates) - 1)]
                bits = scalar_bits("learning_rate", rate)
                lines.append(f"rate learning_rate={bits:08x}")
            if gradients and window.index == steps - 1:
                lines.append(writer.gradients())
            lines.append(f"train id={id_} watched={int(watched)}")
            lines += writer.observations() if watched else []
            lines += [writer.returned(each.what, each.tensor, each.block) for each in results]
        else:
            lines += idle_lines(id_, target.settings)
    lines.append("counters")
    in_ram = [kept for kept in plan.kept if kept.address is not None]
    stored = _dumped(plan, [kept for kept in plan.kept if kept.address is None])
    for kept in in_ram:
        assert kept.address is not None
        block = ArenaRange(kept.address, kept.bytes)
        lines.append(writer.returned("kept", kept.tensor, block))
    lines += writer.fetched(stored)
    if plan.pages and not target.is_firmware and not plan.is_frozen:
        lines.append("forget")
    return writer.script(lines, windows, anew=True)


def recovery_script(target: ReplayTarget) -> Script:
    """Write the script that reads the last complete step from storage, and keeps it there."""
    writer = _Writer(target)
    kept = _dumped(target.plan, target.plan.kept)
    return writer.script(["recover", *writer.fetched(kept)], (), anew=False)


def clearing_script(target: ReplayTarget) -> str | None:
    """Write the script that clears an interrupted replay's storage; None where there is none."""
    storage = target.open_storage(anew=False)
    if not storage or target.is_firmware:
        return None
    return plan_text(ALIGNMENT, storage, ["forget"], target.settings)


def _dumped(plan: ExecutionPlan, kept: Sequence[Kept]) -> tuple[Kept, ...]:
    """The kept tensors with their whole sizes."""
    return tuple(replace(each, bytes=plan.whole_bytes(each)) for each in kept)


@dataclass
class _Writer:
    target: ReplayTarget
    _data: list[memoryview] = field(default_factory=list)
    _data_bytes: int = 0
    _returned: list[Returned] = field(default_factory=list)
    _added: dict[int, tuple[NDArray[Any], int]] = field(default_factory=dict)
    """Arrays that were added, and where they begin, by identity."""

    @property
    def _plan(self) -> ExecutionPlan:
        return self.target.plan

    def script(self, lines: Sequence[str], windows: Sequence[Window], *, anew: bool) -> Script:
        head = [*self.target.open_storage(anew=anew), f"replay plan={self.target.index}"]
        text = plan_text(self._plan.arena_bytes, head, lines, self.target.settings)
        if not self.target.is_firmware and len(text) >= MOST_SCRIPT_BYTES:
            raise RequestRefused(
                f"{self._plan.name}: the script of this run has {size(len(text))}, and a board"
                f" reads less than {size(MOST_SCRIPT_BYTES)}",
                remedy="run fewer steps at a time",
            )
        return Script(
            text=text,
            data=PlanData(tuple(self._data)),
            windows=tuple(windows),
            returned=tuple(self._returned),
        )

    def gradients(self) -> str:
        """The line that returns the gradients of the next step, in the order of their probes."""
        self._returned += [
            Returned("gradient", probe.tensor, probe.block.bytes)
            for probe in self._plan.probes
            if probe.what == "gradient"
        ]
        return "gradients"

    def returned(self, what: Observed | Literal["kept"], tensor: str, block: ArenaRange) -> str:
        """The line that returns a value from the arena."""
        self._returned.append(Returned(what, tensor, block.bytes))
        return f"dump address={block.address} bytes={block.bytes}"

    def place(self, values: Values) -> None:
        """Place the values of the plan's tensors in the data, in the order of their names."""
        plan = self._plan
        sizes = {kept.tensor: plan.whole_bytes(kept) for kept in plan.kept}
        sizes.update((each.tensor, each.bytes) for each in plan.frozen)
        sizes.update((table.tensor, table.bytes) for table in plan.frozen_tables)
        sizes.update((name, block.bytes) for name, block in plan.inputs.items() if name in values)
        for name in sorted(sizes):
            self._add(name, sizes[name], values, "initial values")

    def fetched(self, stored: Sequence[Kept]) -> Iterator[str]:
        """Lines that return stored tensors, through the start of the arena, which is then free."""
        numbers = {kept.tensor: number for number, kept in enumerate(self._plan.kept)}
        tables = self._stored_tables
        for kept in stored:
            number = numbers[kept.tensor]
            self._returned.append(Returned("kept", kept.tensor, kept.bytes))
            if number in tables:
                for rows, size_bytes in self._pieces(tables[number]):
                    yield f"fetch_rows {rows} address=0"
                    yield f"dump address=0 bytes={size_bytes}"
            else:
                yield f"fetch kept={number} address=0"
                yield f"dump address=0 bytes={kept.bytes}"

    def initial(self, values: Values) -> Iterator[str]:
        """Lines that load initial values; first those for storage, which pass through the arena."""
        if self._plan.is_frozen:
            yield from self._frozen(values)
        numbered = sorted(enumerate(self._plan.kept), key=lambda pair: pair[1].address is not None)
        for number, kept in numbered:
            if number in self._stored_tables:
                yield from self._initial_rows(kept.tensor, self._stored_tables[number], values)
                continue
            address = kept.address or 0
            yield self._load(kept.tensor, ArenaRange(address, kept.bytes), values, "initial values")
            if kept.slot is not None:
                yield f"keep kept={number} address={address}"
        if self._plan.pages:
            yield "commit"

    def _frozen(self, values: Values) -> Iterator[str]:
        plan = self._plan
        yield f"frozen key={frozen_key(plan, values)}"
        # One line for each: on a slow medium, all take longer than a line may.
        frozen_tables = [
            (number, table.tensor)
            for number, table in enumerate(plan.tables)
            if table in plan.frozen_tables
        ]
        yield from (f"verify frozen={number} address=0" for number in range(len(plan.frozen)))
        for number, _ in frozen_tables:
            yield from (f"verify_rows {rows} address=0" for rows, _ in self._pieces(number))
        for number, each in enumerate(plan.frozen):
            block = ArenaRange(0, each.bytes)
            yield self._load(each.tensor, block, values, "initial values")
            yield f"freeze frozen={number} address=0"
        for number, tensor in frozen_tables:
            yield from self._initial_rows(tensor, number, values)

    @property
    def _stored_tables(self) -> Mapping[int, int]:
        """Numbers of the kept tables in storage, by those of the kept tensors."""
        plan = self._plan
        return {
            table.kept: number
            for number, table in enumerate(plan.tables)
            if table.kept is not None and table in plan.stored_tables
        }

    def _initial_rows(self, tensor: str, number: int, values: Values) -> Iterator[str]:
        table = self._plan.tables[number]
        begin = self._add(tensor, table.bytes, values, "initial values")
        for rows, size_bytes in self._pieces(number):
            yield f"load address=0 bytes={size_bytes} at={begin}"
            yield f"keep_rows {rows} address=0"
            begin += size_bytes

    def _pieces(self, number: int) -> Iterator[tuple[str, int]]:
        """Pieces of a table that fit into the arena: words of a line, and bytes."""
        table = self._plan.tables[number]
        layout = store_layout(self._plan, self.target.storage)
        # Rows take whole pages on their way to and from storage; a single one has a buffer.
        most = max(1, self._plan.arena_bytes // layout.row_strides[number])
        for first in range(0, table.rows, most):
            count = min(most, table.rows - first)
            yield f"table={number} first={first} count={count}", count * table.row_bytes

    def places(self, blocks: Mapping[str, ArenaRange], values: Values, what: str) -> list[str]:
        return [self._load(name, block, values, what) for name, block in blocks.items()]

    def observations(self) -> Iterator[str]:
        """Lines that read the spans and checksums of a watched step, whenever it pauses."""
        plan, probes = self._plan, 0
        actions = (*plan.actions, *plan.afterwards)
        for number, (first, end) in enumerate(self._stretches()):
            if number:
                yield "resume"
            count = sum(isinstance(action.does, Probe) for action in actions[first:end])
            if count:
                yield f"probes first={probes}"
            yield f"spans first={first}"
            probes += count

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Ranges of actions between the pauses of a watched step (``executor/executor.h``)."""
        step = len(self._plan.actions)
        end = step + len(self._plan.afterwards)
        room = WATCHED_ACTIONS if self.target.is_firmware else end
        first = 0
        while end - first > room:
            limit = step if first < step else end
            last = min(limit, first + room)
            yield first, last
            first = last
        yield first, end

    def _load(self, name: str, block: ArenaRange, values: Values, what: str) -> str:
        at = self._add(name, block.bytes, values, what)
        return f"load address={block.address} bytes={block.bytes} at={at}"

    def _add(self, name: str, size_bytes: int, values: Values, what: str) -> int:
        """Add a value to the data; returns where it begins."""
        if name not in values:
            raise ValueError(f"{self._plan.name}: {name} is missing among the {what}")
        content = np.ascontiguousarray(values[name])
        if content.dtype.itemsize != ELEMENT_BYTES or content.nbytes != size_bytes:
            raise ValueError(
                f"{self._plan.name}: {name} of the {what} has shape {content.shape} and type"
                f" {content.dtype}; {size_bytes} bytes of float32 or int32 are needed"
            )
        # A parameter that no step changes is the same array for every batch.
        _, at = self._added.setdefault(id(values[name]), (values[name], self._data_bytes))
        if at == self._data_bytes:
            content = content.astype(content.dtype.newbyteorder("<"), copy=False)
            self._data.append(content.reshape(-1).view(np.uint8).data)
            self._data_bytes += size_bytes
        return at

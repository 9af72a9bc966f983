"""The executor's C in a shared object, with made-up plans and a made-up storage medium.

The medium checks every access against the rules of flash, and its power can be cut.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping, Sequence
from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_float,
    c_int32,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from devices.description import Storage
from devices.operation import OpSpec
from devices.plan import (
    Action,
    ArenaRange,
    Check,
    Compute,
    ExecutionPlan,
    Frozen,
    Guard,
    Kept,
    Move,
    PageIn,
    PageOut,
    Poison,
    Probe,
    RowsIn,
    RowsOut,
    Select,
    Selection,
    Table,
)
from profiler.building.plan_source import kernel_entry, scalar_bits
from profiler.building.store_layout import StoreLayout, store_layout
from tests.support.compiling import compile_once
from tests.support.paths import NATIVE, ROOT

EXECUTOR = ROOT / "onboard" / "executor"
KERNELS = ROOT / "onboard" / "kernels"
SHIM = NATIVE / "executor_shim.c"

NO_PLACE = 2**32 - 1
NOT_KEPT = NO_SLOT = 2**16 - 1
ROOM = 64
"""Bytes on either side of the arena, for canaries."""

READ, WRITE, ERASE, _BUFFERED, _METHODS = range(5)

_VERBS = {
    kind: verb
    for verb, kind in enumerate(
        (
            *(Compute, PageOut, PageIn, Move, Probe, Guard, Check, Poison),
            *(Select, RowsIn, RowsOut),
        )
    )
}


class _Action(Structure):
    _fields_ = (
        ("verb", c_uint8),
        ("copy", c_uint8, 2),
        ("asynchronous", c_uint8, 1),
        ("gradient", c_uint8, 1),
        ("counted", c_uint8, 1),
        ("waits_for", c_uint16),
        ("index", c_uint16),
        ("address", c_uint32),
        ("words", c_uint32),
    )


class _Operation(Structure):
    _fields_ = (
        ("run", c_void_p),
        ("attributes", POINTER(c_int32)),
        ("scalars", POINTER(c_float)),
        ("read_count", c_uint8),
        ("write_count", c_uint8),
        ("seeded", c_uint8),
        ("rated", c_uint8),
    )


class _Slot(Structure):
    _fields_ = (("offset", c_uint32), ("bytes", c_uint32))


class _Kept(Structure):
    _fields_ = (("address", c_uint32), ("words", c_uint32), ("slot", c_uint16))


class _Selection(Structure):
    _fields_ = (("first", c_uint32), ("count", c_uint32), ("row_count", c_uint32))


class _Table(Structure):
    _fields_ = (
        ("offset", c_uint32),
        ("row_bytes", c_uint32),
        ("row_count", c_uint32),
        ("address", c_uint32),
        ("kept", c_uint16),
        ("selection", c_uint16),
    )


class _Span(Structure):
    _fields_ = (("start_s", c_float), ("time_s", c_float))


class _Memory(Structure):
    _fields_ = (
        ("slot_checksums", POINTER(c_uint32)),
        ("packed_words", POINTER(c_uint32)),
        ("kept_checksums", POINTER(c_uint32)),
        ("frozen_checksums", POINTER(c_uint32)),
        ("probed", POINTER(c_uint32)),
        ("spans", POINTER(_Span)),
        ("page", c_void_p),
        ("rows", POINTER(c_uint32)),
        ("row", c_void_p),
        ("watched_count", c_uint16),
    )


class _Plan(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("arena_bytes", c_uint32),
        ("actions", POINTER(_Action)),
        ("action_count", c_uint16),
        ("step_action_count", c_uint16),
        ("slot_count", c_uint16),
        ("kept_count", c_uint16),
        ("probe_count", c_uint16),
        ("selection_count", c_uint16),
        ("table_count", c_uint16),
        ("frozen_count", c_uint16),
        ("packed_count", c_uint16),
        ("operations", POINTER(_Operation)),
        ("operands", POINTER(c_uint32)),
        ("moves", POINTER(c_uint32)),
        ("slots", POINTER(_Slot)),
        ("packed_slots", POINTER(c_uint16)),
        ("kept", POINTER(_Kept)),
        ("selections", POINTER(_Selection)),
        ("tables", POINTER(_Table)),
        ("frozen", POINTER(_Slot)),
        ("row_count", c_uint32),
        ("frozen_bytes", c_uint32),
        ("frozen_record_offset", c_uint32),
        ("table_bytes", c_uint32),
        ("page_bytes", c_uint32),
        ("counted_page_bytes", c_uint32),
        ("erase_block_bytes", c_uint32),
        ("step_bytes", c_uint32),
        ("record_offset", c_uint32),
        ("memory", POINTER(_Memory)),
    )


_Transfer = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_uint64, c_void_p, ctypes.c_size_t)
Clock = ctypes.CFUNCTYPE(c_uint64)


class _Medium(Structure):
    _fields_ = (
        ("transfer", _Transfer * 4),
        ("page_bytes", c_uint32),
        ("erase_block_bytes", c_uint32),
        ("scratch_bytes", c_uint64),
        ("next", c_uint64),
        ("random", c_uint32),
    )


class _Store(Structure):
    _fields_ = (
        ("bytes_in", c_uint64),
        ("bytes_out", c_uint64),
        ("erased_blocks", c_uint64),
        ("plan", c_void_p),
        ("medium", c_void_p),
        ("identity", c_uint32),
        ("part_count", c_uint32),
        ("begun", c_bool),
        ("complete", c_bool),
        ("settled", c_bool),
        ("is_frozen", c_bool),
        ("run", c_uint32),
        ("step", c_uint32),
        ("part", c_uint32),
        ("erased", c_uint32),
        ("frozen_end", c_uint32),
        ("frozen_erased", c_uint32),
        ("frozen_key", c_uint64),
        ("sentence", ctypes.c_char * 192),
    )


class _Executor(Structure):
    _fields_ = (
        ("plan", POINTER(_Plan)),
        ("arena", c_void_p),
        ("room_before", c_uint32),
        ("room_after", c_uint32),
        ("store", POINTER(_Store)),
        ("channel", c_void_p),
        ("clock_ns", Clock),
        ("running_ns", Clock),
        ("working_ns", Clock),
        ("steps", c_uint32),
        ("learning_rate", POINTER(c_float)),
        ("take_gradient", c_void_p),
        ("taker", c_void_p),
        ("blocked_ns", c_uint64),
        ("transfer_ns", c_uint64),
        ("failed", c_void_p),
        *((name, c_uint16) for name in ("first", "next", "first_probe", "next_probe")),
        ("begin_ns", c_uint64),
        ("paused_ns", c_uint64),
        ("operands", POINTER(c_uint32)),
        ("watched", c_bool),
        ("submitted", c_uint16),
        ("over", c_uint16),
    )


_STRUCTURES = (
    _Action,
    _Operation,
    _Slot,
    _Kept,
    _Selection,
    _Table,
    _Span,
    _Memory,
    _Plan,
    _Medium,
    _Store,
    _Executor,
)


def build_executor(directory: Path) -> ctypes.CDLL:
    """Build with the kernels that depend on no others, and those of the shim."""
    library = directory / "executor.so"
    operations = (
        *("matrices/linear", "elementwise/activation", "training/update"),
        "elementwise/elementwise",
    )
    kernels = ("matmul", *(f"operations/{name}" for name in operations))
    command = (
        *("cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"),
        *(f"-I{path}" for path in (EXECUTOR, KERNELS)),
        *map(str, (SHIM, *sorted(EXECUTOR.glob("*.c")))),
        *(str(KERNELS / f"{name}.c") for name in kernels),
    )
    compile_once(command, library, ["-lm"])
    loaded = ctypes.CDLL(str(library))
    sizes = (ctypes.c_size_t * (len(_STRUCTURES) + 1)).in_dll(loaded, "shim_sizes")
    assert list(sizes)[:-1] == [ctypes.sizeof(structure) for structure in _STRUCTURES]
    for name in ("begin", "step", "resume", "afterwards", "transfer"):
        getattr(loaded, f"jw_executor_{name}").restype = c_char_p
    for name in ("is_paused", "is_over"):
        getattr(loaded, f"jw_executor_{name}").restype = c_bool
    for name in (
        *("open", "begin_frozen", "freeze", "keep", "complete", "recover", "fetch"),
        *("keep_rows", "fetch_rows", "verify_frozen", "verify_rows"),
    ):
        getattr(loaded, f"jw_store_{name}").restype = c_char_p
    for name in ("jw_checksum_of", "jw_touched_bytes"):
        getattr(loaded, name).restype = c_uint32
    return loaded


class ActionRefused(Exception):
    """The executor or its store refused an action; ``action`` is its index in the plan."""

    def __init__(self, sentence: str, action: int | None = None) -> None:
        super().__init__(sentence)
        self.action = action


# --- media ------------------------------------------------------------------------------------


class Medium:
    """A storage medium of pages and, unless ``erase_block_bytes`` is 0, erase blocks.

    With erase blocks, a page must be erased between two writes. Calls are counted: call number
    ``cut_at`` is the last before power fails, and only its first ``torn`` bytes are done. Pages in
    ``unreadable`` and blocks in ``unerasable`` fail. Memory that begins in ``arena`` must not be
    written from beyond its end.
    """

    def __init__(self, page_bytes: int, erase_block_bytes: int, scratch_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.erase_block_bytes = erase_block_bytes
        self.content = bytearray(b"\x5a" * scratch_bytes)
        self.erases = [0] * (scratch_bytes // erase_block_bytes if erase_block_bytes else 0)
        self.writable = [not erase_block_bytes] * (scratch_bytes // page_bytes)
        self.calls = 0
        self.cut_at: int | None = None
        self.torn = 0
        self.unreadable: set[int] = set()
        self.unerasable: set[int] = set()
        self.arena = range(0)
        self.mistakes: list[str] = []
        self._sentences: dict[str, Any] = {}
        self.methods = [
            _Transfer(lambda _, *call: self._do(self._read, *call)),
            _Transfer(lambda _, *call: self._do(self._write, *call)),
            _Transfer(lambda _, *call: self._do(self._erase, *call)),
        ]
        self.structure = _Medium(
            (_Transfer * 4)(*self.methods),
            page_bytes,
            erase_block_bytes,
            scratch_bytes,
        )

    def restored(self) -> Medium:
        """The medium after power has returned."""
        again = Medium(self.page_bytes, self.erase_block_bytes, len(self.content))
        again.content[:] = self.content
        again.writable[:] = self.writable
        again.erases[:] = self.erases
        return again

    def _do(self, method: Any, offset: int, memory: int, size: int) -> int | None:
        try:
            number = self.calls
            self.calls += 1
            if self.cut_at is not None and number >= self.cut_at:
                if number == self.cut_at:
                    method(offset, memory, size, self.torn)
                return self._sentence("there is no power")
            error = method(offset, memory, size, size)
            return None if error is None else self._sentence(error)
        except Exception as mistake:  # no exception may pass through C
            self.mistakes.append(repr(mistake))
            return self._sentence("a mistake")

    def _sentence(self, text: str) -> int:
        buffer = self._sentences.setdefault(text, ctypes.create_string_buffer(text.encode()))
        return ctypes.addressof(buffer)

    def _pages(self, offset: int, size: int) -> range:
        assert offset % self.page_bytes == size % self.page_bytes == 0, (offset, size)
        assert 0 < size <= len(self.content) - offset, (offset, size)
        return range(offset // self.page_bytes, (offset + size) // self.page_bytes)

    def _read(self, offset: int, memory: int, size: int, most: int) -> str | None:
        if self.unreadable.intersection(self._pages(offset, size)):
            return "the medium is worn out"
        ctypes.memmove(memory, bytes(self.content[offset : offset + most]), min(size, most))
        return None

    def _write(self, offset: int, memory: int, size: int, most: int) -> str | None:
        assert memory not in self.arena or memory + size <= self.arena.stop, "beyond the arena"
        data = ctypes.string_at(memory, size)
        for count, page in enumerate(self._pages(offset, size)):
            assert self.writable[page], f"page {page} was not erased"
            if (count + 1) * self.page_bytes > most:
                if count * self.page_bytes < most or most == 0:
                    self._tear(page, data[count * self.page_bytes :])
                break
            begin = page * self.page_bytes
            self.content[begin : begin + self.page_bytes] = data[begin - offset :][
                : self.page_bytes
            ]
            self.writable[page] = not self.erase_block_bytes
        return None

    def _tear(self, page: int, data: bytes) -> None:
        """Write the first half of a page; the rest becomes noise."""
        begin, half = page * self.page_bytes, self.page_bytes // 2
        self.content[begin : begin + half] = data[:half]
        for at in range(begin + half, begin + self.page_bytes):
            self.content[at] ^= 0x3C
        self.writable[page] = not self.erase_block_bytes

    def _erase(self, offset: int, _memory: int, size: int, most: int) -> str | None:
        block = self.erase_block_bytes
        assert offset % block == size % block == 0, (offset, size)
        self._pages(offset, size)
        if self.unerasable.intersection(range(offset // block, (offset + size) // block)):
            return "the block is worn out"
        for begin in range(offset, offset + size, block):
            if begin - offset >= most and most != size:
                self.content[begin : begin + block // 2] = b"\x99" * (block // 2)
                break
            self.content[begin : begin + block] = b"\xff" * block
            self.erases[begin // block] += 1
            for page in self._pages(begin, block):
                self.writable[page] = True
        return None


# --- replays ----------------------------------------------------------------------------------


@dataclass
class Replay:
    """A plan in an arena; an operation named after a kernel of the shim runs that kernel.

    Each clock read advances the clock by a millisecond. With ``watched_count``, memory has room for
    the spans and checksums of so many actions, and ``pauses`` counts the pauses of the last step.
    """

    library: ctypes.CDLL
    plan: ExecutionPlan
    layout: StoreLayout
    medium: Medium | None = None
    watched_count: int | None = None
    pauses: int = 0
    probed: list[int] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    executor: _Executor = field(init=False)
    store: _Store = field(init=False)
    clock_ns: int = 0
    looks: int = 0
    _alive: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        size = self.plan.arena_bytes + 2 * ROOM
        self._room = ctypes.create_string_buffer(size + 64)
        begin = -(-ctypes.addressof(self._room) // 64) * 64
        self._arena = begin + ROOM
        self._table = self._plan_table()
        self.store = _Store()
        clock = self._kept_alive(Clock(self._look))
        idle = self._kept_alive(Clock(lambda: 0))
        self.executor = _Executor(
            plan=ctypes.pointer(self._table),
            arena=self._arena,
            room_before=ROOM,
            room_after=ROOM,
            store=ctypes.pointer(self.store) if self.plan.pages and self.medium else None,
            clock_ns=clock,
            running_ns=idle,
            working_ns=idle,
        )
        if self.plan.pages and self.medium is not None:
            self.medium.arena = range(self._arena, self._arena + self.plan.arena_bytes)
            self._check(
                self.library.jw_store_open(
                    ctypes.byref(self.store),
                    ctypes.byref(self._table),
                    ctypes.byref(self.medium.structure),
                )
            )
        self._check(self.library.jw_executor_begin(ctypes.byref(self.executor)))

    def __getitem__(self, place: slice) -> bytes:
        return ctypes.string_at(self._arena + place.start, place.stop - place.start)

    def put(self, address: int, data: bytes) -> None:
        """Write bytes to the arena."""
        ctypes.memmove(self._arena + address, data, len(data))

    def keep(self, kept: int, data: bytes, address: int = 0) -> None:
        """Store the initial value of the kept tensor with this number, by way of the arena."""
        self.put(address, data)
        room = ctypes.c_size_t(self.plan.arena_bytes - address)
        memory = c_void_p(self._arena + address)
        store = ctypes.byref(self.store)
        self._check(self.library.jw_store_keep(store, c_uint16(kept), memory, room))

    def freeze(self, key: int, values: Sequence[bytes], first: int = 0) -> None:
        """Store the frozen tensors from number ``first`` on, by way of the arena.

        What the storage holds already is verified before.
        """
        store = ctypes.byref(self.store)
        self._check(self.library.jw_store_begin_frozen(store, c_uint64(key)))
        arena = c_void_p(self._arena)
        for number in range(len(self.plan.frozen)):
            self._check(self.library.jw_store_verify_frozen(store, c_uint16(number), arena))
        for number, table in enumerate(self.plan.tables):
            if table in self.plan.frozen_tables:
                most = self.plan.arena_bytes // table.row_bytes
                for row in range(0, table.rows, most):
                    self.verify_rows(number, row, min(most, table.rows - row))
        for number, data in enumerate(values, first):
            self.put(0, data)
            place = c_void_p(self._arena), ctypes.c_size_t(self.plan.arena_bytes)
            self._check(self.library.jw_store_freeze(store, c_uint16(number), *place))

    def verify_rows(self, table: int, first: int, count: int) -> None:
        """Verify rows of the frozen table with this number, by way of the arena."""
        place = c_void_p(self._arena), ctypes.c_size_t(self.plan.arena_bytes)
        arguments = (c_uint16(table), c_uint32(first), c_uint32(count), *place)
        self._check(self.library.jw_store_verify_rows(ctypes.byref(self.store), *arguments))

    def keep_rows(self, table: int, first: int, data: bytes) -> None:
        """Store the initial values of rows of the table with this number, by way of the arena."""
        count = len(data) // self.plan.tables[table].row_bytes
        self.put(0, data)
        place = c_void_p(self._arena), ctypes.c_size_t(self.plan.arena_bytes)
        arguments = (c_uint16(table), c_uint32(first), c_uint32(count), *place)
        self._check(self.library.jw_store_keep_rows(ctypes.byref(self.store), *arguments))

    def fetch_rows(self, table: int, first: int, count: int) -> bytes:
        """Values of rows of the table with this number, by way of the arena."""
        place = c_void_p(self._arena), ctypes.c_size_t(self.plan.arena_bytes)
        arguments = (c_uint16(table), c_uint32(first), c_uint32(count), *place)
        self._check(self.library.jw_store_fetch_rows(ctypes.byref(self.store), *arguments))
        return self[0 : count * self.plan.tables[table].row_bytes]

    def commit(self) -> None:
        """Complete the initial values in the store."""
        self._check(self.library.jw_store_complete(ctypes.byref(self.store)))

    def step(self, *, watched: bool = False) -> None:
        """Execute one training step and the actions after it."""
        executor, library = ctypes.byref(self.executor), self.library
        self.pauses, self.probed, self.spans = -1, [], []
        self._check(library.jw_executor_step(executor, c_bool(watched)))
        self._read()
        while not library.jw_executor_is_over(executor):
            self._check(library.jw_executor_resume(executor))
            self._read()
        if library.jw_executor_is_paused(executor):
            self._check(library.jw_executor_resume(executor))
        self._check(library.jw_executor_afterwards(executor))
        self._read()
        while library.jw_executor_is_paused(executor):
            self._check(library.jw_executor_resume(executor))
            self._check(library.jw_executor_afterwards(executor))
            self._read()

    def recover(self) -> int:
        """Recover the store after a power cut; returns the number of its last complete step."""
        self._check(self.library.jw_store_recover(ctypes.byref(self.store)))
        return int(self.store.step)

    def fetch(self, kept: int, address: int = 0) -> bytes:
        """Value of the kept tensor with this number, by way of the arena."""
        memory = c_void_p(self._arena + address)
        store = ctypes.byref(self.store)
        self._check(self.library.jw_store_fetch(store, c_uint16(kept), memory))
        return self[address : address + self.plan.kept[kept].bytes]

    def _read(self) -> None:
        """Read the spans and checksums that memory holds of a watched step."""
        executor, memory = self.executor, self._table.memory.contents
        if not executor.watched or len(self.spans) == executor.next:
            return
        del self.spans[executor.first :], self.probed[executor.first_probe :]
        self.pauses += 1
        self.spans += [
            (span.start_s, span.time_s) for span in memory.spans[: executor.next - executor.first]
        ]
        self.probed += memory.probed[: executor.next_probe - executor.first_probe]

    @property
    def touched_bytes(self) -> int:
        return int(self.library.jw_touched_bytes(ctypes.byref(self.executor)))

    def _look(self) -> int:
        self.looks += 1
        self.clock_ns += 1_000_000
        return self.clock_ns

    def _check(self, sentence: bytes | None) -> None:
        if self.medium is not None and self.medium.mistakes:
            raise AssertionError(self.medium.mistakes)
        if sentence is not None:
            failed = self.executor.failed if hasattr(self, "executor") else None
            first = ctypes.cast(self._table.actions, c_void_p).value
            index = None
            if failed is not None and first is not None:
                index = (failed - first) // ctypes.sizeof(_Action)
            raise ActionRefused(sentence.decode(), index)

    def _kept_alive(self, thing: Any) -> Any:
        self._alive.append(thing)
        return thing

    def _plan_table(self) -> _Plan:
        plan, layout = self.plan, self.layout
        operations: list[_Operation] = []
        operands: list[int] = []
        moves: list[int] = []
        actions: list[_Action] = []
        probes = 0
        for action in (*plan.actions, *plan.afterwards):
            match action.does:
                case Compute():
                    index = len(operations)
                    operations.append(self._operation(action.does))
                    operands += [at // 4 for at in (*action.does.reads, *action.does.writes)]
                case PageOut(slot=index) | PageIn(slot=index):
                    pass
                case Select(selection=index) | RowsIn(table=index) | RowsOut(table=index):
                    pass
                case Probe():
                    index = probes
                    probes += 1
                case Move(to=to):
                    index = len(moves)
                    moves.append(to // 4)
                case _:
                    index = 0
            actions.append(self._action(action, index))
        slots = [_Slot(o, b) for o, b in zip(layout.offsets, plan.slot_bytes, strict=True)]
        kept = [
            _Kept(_place(k.address), k.bytes // 4, NO_SLOT if k.slot is None else k.slot)
            for k in plan.kept
        ]
        firsts = [sum(s.indices for s in plan.selections[:n]) for n in range(len(plan.selections))]
        selections = [
            _Selection(first, s.indices, s.rows)
            for first, s in zip(firsts, plan.selections, strict=True)
        ]
        offsets = layout.table_offsets or (0,) * len(plan.tables)
        tables = [
            _Table(
                *(offset, table.row_bytes, table.rows, _place(table.address)),
                *(NOT_KEPT if table.kept is None else table.kept, table.selection),
            )
            for offset, table in zip(offsets, plan.tables, strict=True)
        ]
        frozen = [
            _Slot(o, f.bytes) for o, f in zip(layout.frozen_offsets, plan.frozen, strict=True)
        ]
        row = self._kept_alive(ctypes.create_string_buffer(max(layout.row_strides, default=1)))
        page = self._kept_alive(ctypes.create_string_buffer(layout.page_bytes))
        memory = _Memory(
            slot_checksums=self._array(c_uint32, [0] * len(slots)),
            packed_words=self._array(c_uint32, [0] * len(plan.packed_bytes)),
            kept_checksums=self._array(c_uint32, [0] * len(kept)),
            frozen_checksums=self._array(c_uint32, [0] * len(frozen)),
            probed=self._array(c_uint32, [0] * probes),
            spans=self._array(_Span, [_Span()] * len(actions)),
            page=ctypes.addressof(page),
            rows=self._array(c_uint32, [0] * plan.selected_rows),
            row=ctypes.addressof(row),
            watched_count=len(actions) if self.watched_count is None else self.watched_count,
        )
        self._kept_alive(memory)
        return _Plan(
            name=plan.name.encode(),
            arena_bytes=plan.arena_bytes,
            actions=self._array(_Action, actions),
            action_count=len(actions),
            step_action_count=len(plan.actions),
            slot_count=len(slots),
            kept_count=len(kept),
            probe_count=probes,
            selection_count=len(selections),
            table_count=len(tables),
            frozen_count=len(frozen),
            packed_count=len(plan.packed_bytes),
            operations=self._array(_Operation, operations),
            operands=self._array(c_uint32, operands),
            moves=self._array(c_uint32, moves),
            slots=self._array(_Slot, slots),
            packed_slots=self._array(c_uint16, list(plan.packed_bytes)),
            kept=self._array(_Kept, kept),
            selections=self._array(_Selection, selections),
            tables=self._array(_Table, tables),
            frozen=self._array(_Slot, frozen),
            row_count=plan.selected_rows,
            frozen_bytes=layout.frozen_bytes,
            frozen_record_offset=layout.frozen_record_offset,
            table_bytes=layout.table_bytes,
            page_bytes=layout.page_bytes,
            counted_page_bytes=plan.counted_page_bytes,
            erase_block_bytes=layout.erase_block_bytes,
            step_bytes=layout.step_bytes,
            record_offset=layout.record_offset,
            memory=ctypes.pointer(memory),
        )

    def _array(self, kind: Any, values: list[Any]) -> Any:
        return self._kept_alive((kind * max(1, len(values)))(*values))

    def _operation(self, op: Compute) -> _Operation:
        own = op.op if op.op.startswith("shim_") else kernel_entry(op.spec.kind)
        names = op.spec.signature.scalars
        scalars = [scalar_bits(name, op.scalars[name]) for name in names]
        return _Operation(
            run=ctypes.cast(getattr(self.library, own), c_void_p).value,
            attributes=self._array(c_int32, list(op.spec.values)),
            scalars=ctypes.cast(self._array(c_uint32, scalars), POINTER(c_float)),
            read_count=len(op.reads),
            write_count=len(op.writes),
            seeded=len(names) if "seed" in names else 0,
            rated=len(names) if "learning_rate" in names else 0,
        )

    def _action(self, action: Action, index: int) -> _Action:
        operation = action.does
        row = _Action(verb=_VERBS[type(operation)], waits_for=action.waits_for, index=index)
        if isinstance(operation, Compute):
            workspace = operation.workspace
            row.address = _place(None if workspace is None else workspace.address)
        else:
            row.address, row.words = operation.block.address // 4, operation.block.bytes // 4
        if isinstance(operation, PageOut | PageIn | RowsIn):
            row.asynchronous = operation.asynchronous
        if isinstance(operation, Probe):
            row.counted = operation.what == "zeros"
        if isinstance(operation, PageIn):
            row.copy = ("this step", "last step", "frozen").index(operation.of)
        return row


def _place(address: int | None) -> int:
    """An address in words."""
    return NO_PLACE if address is None else address // 4


def shim(name: str, address: int, size_bytes: int) -> Action:
    """An action that runs a kernel of the shim in place."""
    spec = OpSpec.of("relu.forward", elements=size_bytes // 4)
    scalars: Mapping[str, float] = {}
    return Action(Compute(f"shim_{name}", spec, (address,), (address,), None, scalars))


# --- channels -----------------------------------------------------------------------------------

_Submit = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
_Wait = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_uint16, POINTER(c_void_p))
_IsOver = ctypes.CFUNCTYPE(c_bool, c_void_p, c_uint16)


class _Channel(Structure):
    _fields_ = (("submit", _Submit), ("wait", _Wait), ("is_over", _IsOver))


class Channel:
    """A transfer channel that works only while it is waited for.

    ``waits`` lists for each wait how many transfers were under way and how many might be left.
    ``handed_over`` is the number of transfers that it was given. The one with number ``fails_at``
    fails.
    """

    def __init__(self, replay: Replay, fails_at: int | None = None) -> None:
        self._replay = replay
        self._fails_at = fails_at
        self._under_way: list[int] = []
        self._done = 0
        self._sentence = ctypes.create_string_buffer(b"the channel broke")
        self.handed_over = 0
        self.waits: list[tuple[int, int]] = []
        self._structure = _Channel(_Submit(self._submit), _Wait(self._wait), _IsOver(self._is_over))
        replay.executor.channel = ctypes.addressof(self._structure)

    def _submit(self, _channel: int, transfer: int) -> None:
        self.handed_over += 1
        self._under_way.append(transfer)

    def _is_over(self, _channel: int, left: int) -> bool:
        return len(self._under_way) <= left

    def _wait(self, _channel: int, left: int, failed: Any) -> int | None:
        self.waits.append((len(self._under_way), left))
        while len(self._under_way) > left:
            transfer = self._under_way.pop(0)
            if self._done == self._fails_at:
                self._under_way.clear()
                failed[0] = transfer
                return ctypes.addressof(self._sentence)
            executor = ctypes.byref(self._replay.executor)
            error = self._replay.library.jw_executor_transfer(executor, c_void_p(transfer))
            assert error is None
            self._done += 1
        return None


# --- plans ----------------------------------------------------------------------------------

KEPT = (28, 64, 100, 4)
"""Sizes in bytes of kept tensors: even-numbered ones stay in RAM, odd-numbered ones in storage."""


def keeping(name: str = "kept", sizes: tuple[int, ...] = KEPT, *, moving: int = 0) -> ExecutionPlan:
    """A plan whose steps add one to every word of every kept tensor.

    Tensors with their home in storage pass through the end of the arena. ``moving`` further bytes
    are paged out and in again in each step.
    """
    addresses, kept, actions, afterwards, slots = [], [], [], [], []
    end = 0
    for size in sizes[::2]:
        addresses.append(end)
        end += size
    through = end
    end += max(sizes[1::2], default=0)
    if moving:
        actions += [
            Action(PageOut("moving", ArenaRange(end, moving), 0)),
            Action(Poison(ArenaRange(end, moving))),
            Action(PageIn("moving", ArenaRange(end, moving), 0)),
        ]
        slots.append(moving)
    for number, size in enumerate(sizes):
        place = ArenaRange(through if number % 2 else addresses[number // 2], size)
        tensor = f"tensor {number}"
        kept.append(Kept(tensor, tensor, size, None if number % 2 else place.address, len(slots)))
        if number % 2:
            actions.append(Action(PageIn(tensor, place, len(slots), "last step")))
        actions.append(shim("bump", place.address, size))
        out = Action(PageOut(tensor, place, len(slots)))
        (actions if number % 2 else afterwards).append(out)
        slots.append(size)
    # Slots are numbered in the order of their writes: those written after the step come last.
    last = [a.does.slot for a in afterwards if isinstance(a.does, PageOut)]
    order = [s for s in range(len(slots)) if s not in last] + last
    rank = {slot: order.index(slot) for slot in range(len(slots))}
    return ExecutionPlan(
        name=name,
        arena_bytes=end + moving + 64,
        inputs={},
        kept=tuple(replace(k, slot=rank[k.slot or 0]) for k in kept),
        actions=tuple(_renumbered(actions, rank)),
        afterwards=tuple(_renumbered(afterwards, rank)),
        slot_bytes=tuple(slots[slot] for slot in order),
    )


ROWS, CHOSEN = 9, 4
"""Rows of a table of :func:`looking_up`, and rows that a batch names."""


def looking_up(row_words: tuple[int, ...] = (3, 1), *, name: str = "rows") -> ExecutionPlan:
    """A plan whose steps add one to every word of the rows that the batch names in each table.

    The tables have one selection, whose indices are at the start of the arena. A further kept
    tensor of a word is in RAM, after them; each step adds one to it.
    """
    indices, counter = ArenaRange(0, 4 * CHOSEN), ArenaRange(4 * CHOSEN, 4)
    place = counter.end
    actions, kept, tables = [Action(Select(0, indices))], [], []
    for number, words_ in enumerate(row_words):
        block = ArenaRange(place, 4 * words_ * CHOSEN)
        place = block.end
        tensor = f"table {number}"
        kept.append(Kept(tensor, tensor, block.bytes, None, number))
        tables.append(Table(tensor, number, 0, ROWS, 4 * words_))
        actions += [
            Action(RowsIn(tensor, block, number)),
            shim("bump", block.address, block.bytes),
            Action(PageOut(tensor, block, number)),
        ]
    kept.append(Kept("counter", "counter", 4, counter.address, len(row_words)))
    actions.append(shim("bump", counter.address, 4))
    return ExecutionPlan(
        name=name,
        arena_bytes=place,
        inputs={"indices": indices},
        kept=tuple(kept),
        actions=tuple(actions),
        afterwards=(Action(PageOut("counter", counter, len(row_words))),),
        slot_bytes=tuple(each.bytes for each in kept),
        tables=tuple(tables),
        selections=(Selection(CHOSEN, ROWS),),
    )


def reading_frozen(sizes: Sequence[int], row_words: int | None = None) -> ExecutionPlan:
    """A plan whose steps add frozen tensors of these sizes, word by word, to kept ones.

    The kept tensors have their home in storage. With ``row_words``, the rows of a frozen table that
    the batch names are added to a further one; the indices are at the start of the arena.
    """
    indices = ArenaRange(0, 4 * CHOSEN)
    rows = [] if row_words is None else [4 * row_words * CHOSEN]
    kept_block, frozen_block = indices.end, indices.end + max(*sizes, *rows, 4)
    actions = [] if row_words is None else [Action(Select(0, indices))]
    for number, size in enumerate((*sizes, *rows)):
        here, there = ArenaRange(kept_block, size), ArenaRange(frozen_block, size)
        tensor, spec = f"kept {number}", OpSpec.of("relu.forward", elements=size // 4)
        added: PageIn | RowsIn = PageIn(f"frozen {number}", there, number, "frozen")
        if number == len(sizes):
            added = RowsIn("table", there, 0)
        add = Compute("shim_add", spec, (here.address, there.address), (here.address,), None, {})
        actions += [
            Action(PageIn(tensor, here, number, "last step")),
            Action(added),
            Action(add),
            Action(PageOut(tensor, here, number)),
        ]
    each = (*sizes, *rows)
    names = [f"kept {number}" for number in range(len(each))]
    return ExecutionPlan(
        name="frozen",
        arena_bytes=frozen_block + max(*sizes, *rows, 4),
        inputs={"indices": indices} if rows else {},
        kept=tuple(Kept(name, name, each[i], None, i) for i, name in enumerate(names)),
        actions=tuple(actions),
        slot_bytes=each,
        tables=() if row_words is None else (Table("table", None, 0, ROWS, 4 * row_words),),
        selections=() if row_words is None else (Selection(CHOSEN, ROWS),),
        frozen=tuple(Frozen(f"frozen {number}", size) for number, size in enumerate(sizes)),
    )


def _renumbered(actions: list[Action], rank: dict[int, int]) -> Iterator[Action]:
    for action in actions:
        operation = action.does
        if isinstance(operation, PageOut | PageIn):
            operation = replace(operation, slot=rank[operation.slot])
        yield Action(operation)


def initial(plan: ExecutionPlan) -> list[bytes]:
    """Random initial values of a plan's kept tensors."""
    random = np.random.default_rng(1)
    return [words(*map(int, random.integers(0, 1 << 30, k.bytes // 4))) for k in plan.kept]


def words(*values: int) -> bytes:
    """Words as little-endian bytes."""
    return struct.pack(f"<{len(values)}I", *values)


def bumped(data: bytes, by: int = 1) -> bytes:
    """The data with ``by`` added to each word."""
    return words(*(word + by for word in struct.unpack(f"<{len(data) // 4}I", data)))


# --- cards ------------------------------------------------------------------------------------


def card(page_bytes: int, block_bytes: int | None = None) -> Storage:
    """A storage medium of these page and erase block sizes."""
    return Storage(
        medium="nor-flash",
        driver="any",
        page_bytes=page_bytes,
        erase_block_bytes=block_bytes,
        scratch_bytes=1 << 20,
    )


CARDS = [card(4), card(64), card(512), card(4, 64), card(16, 64), card(16, 1024)]


def begun(
    library: ctypes.CDLL,
    plan: ExecutionPlan,
    storage: Storage,
    medium: Medium,
    *,
    watched_count: int | None = None,
) -> Replay:
    """A replay whose kept tensors have their initial values."""
    replay = Replay(library, plan, store_layout(plan, storage), medium, watched_count)
    values = initial(plan)
    for stored in (True, False):
        for number, kept in enumerate(plan.kept):
            if (kept.address is None) is stored:
                replay.keep(number, values[number], kept.address or 0)
    replay.commit()
    return replay


def medium_for(plan: ExecutionPlan, storage: Storage, parts: int, beyond: int = 0) -> Medium:
    """A medium with room for ``parts`` steps and ``beyond`` further pages or erase blocks."""
    layout = store_layout(plan, storage)
    unit = layout.erase_block_bytes or layout.page_bytes
    size = layout.frozen_bytes + parts * layout.step_bytes + beyond * unit
    return Medium(layout.page_bytes, layout.erase_block_bytes, size)

"""Execution plans as one C file of constants for the executor.

The layout is that of ``executor/execution_plan.h``. Kernels are referenced by name, so that a
linker leaves out those that no plan uses. What a plan never changes is constant, so that a
microcontroller keeps it in flash.
"""

from __future__ import annotations

import re
import struct
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from devices.description import Storage
from devices.errors import RequestRefused
from devices.operation import OpSpec
from devices.plan import (
    MOST_ACTIONS,
    Action,
    Check,
    Compute,
    ExecutionPlan,
    Guard,
    Move,
    Operation,
    PageIn,
    PageOut,
    Poison,
    Probe,
    RowsIn,
    RowsOut,
    Select,
)
from profiler.building.store_layout import StoreLayout, store_layout

PLANS = "plans.c"
"""Name of the file in a build."""

WORD_BYTES = 4
"""Unit of addresses and sizes in the arena: ``JW_PLACE_BYTES``."""

SMALL_ARENA_BYTES = 1 << 18
"""RAM up to which a board's tables have addresses of 16 bits: ``JW_SMALL_ARENA``."""

_COLUMNS = 100
_MOST_BYTES = 2**32 - 2

# Kinds that share an entry point of the kernel library.
_SHARED_ENTRIES = {
    "batch_norm_frozen.parameter_gradient": "jw_batch_norm_parameter_gradient",
    "broadcast_multiply.forward": "jw_broadcast_multiply",
    "broadcast_multiply.input_gradient": "jw_broadcast_multiply",
    "broadcast_select.forward": "jw_broadcast_select",
    "broadcast_select.input_gradient": "jw_broadcast_select",
    "clamp_bits.input_gradient": "jw_bits_input_gradient",
    "dropout.forward": "jw_dropout",
    "dropout.input_gradient": "jw_dropout",
    "dropout_part.forward": "jw_dropout_part",
    "dropout_part.input_gradient": "jw_dropout_part",
    "dropout_rows.forward": "jw_dropout_rows",
    "dropout_rows.input_gradient": "jw_dropout_rows",
    "embedding_padded.forward": "jw_embedding_forward",
    "flatten.forward": "jw_flatten",
    "flatten.input_gradient": "jw_flatten",
    "multiply.forward": "jw_multiply",
    "multiply.left_gradient": "jw_multiply",
    "multiply.right_gradient": "jw_multiply",
    "multiply_number.forward": "jw_multiply_number",
    "multiply_number.input_gradient": "jw_multiply_number",
    "pad.forward": "jw_strided_copy_input_gradient",
    "pad.input_gradient": "jw_strided_copy_forward",
    "relu_bits.input_gradient": "jw_bits_input_gradient",
    "rnn_relu.parameter_gradient": "jw_rnn_parameter_gradient",
    "rnn_tanh.parameter_gradient": "jw_rnn_parameter_gradient",
}


def kernel_entry(kind: str) -> str:
    """C function of a kind, as ``kernels/kernels.h`` declares it."""
    return _SHARED_ENTRIES.get(kind, "jw_" + kind.replace(".", "_"))


def distinct_operations(plan: ExecutionPlan) -> tuple[Compute, ...]:
    """The first compute of each operation of a plan: of each kernel, attributes and scalars."""
    found: dict[tuple[OpSpec, tuple[int, ...]], Compute] = {}
    for op in plan.computes:
        found.setdefault(_operation_key(op), op)
    return tuple(found.values())


def _operation_key(op: Compute) -> tuple[OpSpec, tuple[int, ...]]:
    names = op.spec.signature.scalars
    return op.spec, tuple(scalar_bits(name, op.scalars[name]) for name in names)


def plans_source(
    plans: Sequence[ExecutionPlan],
    storage: Storage | None,
    *,
    watched_actions: int | None = None,
) -> str:
    """Write the C file that defines ``jw_plans``: plan number i of the program is ``plans[i]``.

    The same plans always give the same text.

    Args:
        plans: Execution plans.
        storage: The board's storage; its pages and erase blocks determine where transfers go.
        watched_actions: Actions of which RAM holds what is watched; a watched step of more pauses.
            None for all.

    Raises:
        RequestRefused: A plan is too large for the table.
    """
    shared = _Constants()
    bodies = [
        line
        for index, plan in enumerate(plans)
        for line in _Plan(
            index, plan, store_layout(plan, storage), shared, watched_actions
        ).definitions()
    ]
    listed = "".join(f"    &plan_{index},\n" for index in range(len(plans)))
    return "\n".join(
        [
            "/* Written by Joulewright from an execution plan; changes are lost. */",
            '#include "execution_plan.h"',
            '#include "kernels.h"',
            "",
            *shared.definitions,
            *bodies,
            f"const jw_plan *const jw_plans[] = {{\n{listed}}};",
            f"const size_t jw_plan_count = {len(plans)};",
            "",
        ]
    )


@dataclass
class _Constants:
    """Attributes and scalars; each distinct list is defined once for all plans."""

    definitions: list[str] = field(default_factory=list)
    _attributes: dict[OpSpec, str] = field(default_factory=dict)
    _scalars: dict[tuple[tuple[str, ...], tuple[int, ...]], str] = field(default_factory=dict)

    def attributes(self, spec: OpSpec) -> str:
        if spec not in self._attributes:
            name = f"attributes_{len(self._attributes)}"
            self._attributes[spec] = name
            values = ", ".join(map(str, spec.values))
            self.definitions += [
                c_comment(spec.key),
                f"static const int32_t {name}[{len(spec.values)}] = {{{values}}};\n",
            ]
        return self._attributes[spec]

    def scalars(self, spec: OpSpec, values: Mapping[str, float]) -> str:
        names = spec.signature.scalars
        if not names:
            return "NULL"
        bits = tuple(scalar_bits(name, values[name]) for name in names)
        # A seed's bits may not form a finite float, so they cannot be written as a float constant.
        has_seed = "seed" in names
        if (names, bits) not in self._scalars:
            name = f"scalars_{len(self._scalars)}"
            self._scalars[names, bits] = f"{name}.values" if has_seed else name
            self.definitions.append(c_comment(", ".join(f"{key} {values[key]:g}" for key in names)))
            if has_seed:
                patterns = ", ".join(f"0x{pattern:08x}" for pattern in bits)
                self.definitions.append(
                    f"static const union {{\n    uint32_t bits[{len(bits)}];\n"
                    f"    float values[{len(bits)}];\n}} {name} = {{{{{patterns}}}}};\n"
                )
            else:
                numbers = ", ".join(map(_c_float, bits))
                self.definitions.append(
                    f"static const float {name}[{len(bits)}] = {{{numbers}}};\n"
                )
        return self._scalars[names, bits]


@dataclass(frozen=True)
class _Plan:
    index: int
    plan: ExecutionPlan
    layout: StoreLayout
    shared: _Constants
    watched_actions: int | None

    def definitions(self) -> Iterator[str]:
        self._check_size()
        plan, layout = self.plan, self.layout
        computes = list(plan.computes)
        operations = distinct_operations(plan)
        actions = (*plan.actions, *plan.afterwards)
        moves = [action.does.to for action in actions if isinstance(action.does, Move)]
        yield c_comment(f"--- {plan.name} ---")
        yield from self._numbers(
            "operands",
            [address for op in computes for address in (*op.reads, *op.writes)],
        )
        yield from self._numbers("moves", moves)
        yield from self._table("jw_operation", "operations", self._operations(operations))
        yield from self._table("jw_action", "actions", self._actions(actions, operations))
        yield from self._table("jw_slot", "slots", self._slots())
        packed = [f"    {slot},\n" for slot in plan.packed_bytes]
        yield from self._table("uint16_t", "packed_slots", iter(packed))
        yield from self._table("jw_kept", "kept", self._kept())
        yield from self._table("jw_selection", "selections", self._selections())
        yield from self._table("jw_table", "tables", self._tables())
        yield from self._table("jw_slot", "frozen", self._frozen())
        yield from self._memory(len(actions))
        probes = len(plan.probes)
        yield (
            f"static const jw_plan plan_{self.index} = {{\n"
            f"    .name = {c_string(plan.name)},\n"
            f"    .arena_bytes = {plan.arena_bytes},\n"
            f"    .actions = {self._name('actions', len(actions))},\n"
            f"    .action_count = {len(actions)},\n"
            f"    .step_action_count = {len(plan.actions)},\n"
            f"    .slot_count = {len(plan.slot_bytes)},\n"
            f"    .kept_count = {len(plan.kept)},\n"
            f"    .probe_count = {probes},\n"
            f"    .selection_count = {len(plan.selections)},\n"
            f"    .table_count = {len(plan.tables)},\n"
            f"    .frozen_count = {len(plan.frozen)},\n"
            f"    .packed_count = {len(packed)},\n"
            f"    .operations = {self._name('operations', len(operations))},\n"
            f"    .operands = {self._name('operands', len(computes))},\n"
            f"    .moves = {self._name('moves', len(moves))},\n"
            f"    .slots = {self._name('slots', len(plan.slot_bytes))},\n"
            f"    .packed_slots = {self._name('packed_slots', len(packed))},\n"
            f"    .kept = {self._name('kept', len(plan.kept))},\n"
            f"    .selections = {self._name('selections', len(plan.selections))},\n"
            f"    .tables = {self._name('tables', len(plan.tables))},\n"
            f"    .frozen = {self._name('frozen', len(plan.frozen))},\n"
            f"    .row_count = {plan.selected_rows},\n"
            f"    .frozen_bytes = {layout.frozen_bytes},\n"
            f"    .frozen_record_offset = {layout.frozen_record_offset},\n"
            f"    .table_bytes = {layout.table_bytes},\n"
            f"    .page_bytes = {layout.page_bytes},\n"
            f"    .counted_page_bytes = {plan.counted_page_bytes},\n"
            f"    .erase_block_bytes = {layout.erase_block_bytes},\n"
            f"    .step_bytes = {layout.step_bytes},\n"
            f"    .record_offset = {layout.record_offset},\n"
            f"    .memory = &memory_{self.index},\n"
            "};\n"
        )

    def _check_size(self) -> None:
        """Raise :class:`~devices.errors.RequestRefused` if the plan is too large."""
        plan = self.plan
        counts = {
            "actions": len(plan.actions) + len(plan.afterwards),
            "transfers": len(plan.slot_bytes),
            "kept tensors": len(plan.kept),
            "frozen tensors": len(plan.frozen),
        }
        for what, count in counts.items():
            if count > MOST_ACTIONS:
                raise RequestRefused(
                    f"{plan.name}: {count} {what}; boards run plans of at most {MOST_ACTIONS}."
                    " Choose a smaller network or larger slices"
                )
        sizes = {
            "arena": plan.arena_bytes,
            "part of the storage": self.layout.step_bytes,
            "part of the storage for tables": self.layout.table_bytes,
            "frozen part of the storage": self.layout.frozen_bytes,
        }
        for what, size in sizes.items():
            if size > _MOST_BYTES:
                raise RequestRefused(
                    f"{plan.name}: its {what} has {size} bytes; boards run plans of at most"
                    f" {_MOST_BYTES}. Choose a smaller batch or network"
                )

    def _name(self, table: str, count: int) -> str:
        return f"{table}_{self.index}" if count else "NULL"

    def _table(self, kind: str, table: str, rows: Iterator[str]) -> Iterator[str]:
        lines = list(rows)
        if lines:
            yield f"static const {kind} {table}_{self.index}[] = {{\n{''.join(lines)}}};\n"

    def _numbers(self, table: str, addresses: Sequence[int]) -> Iterator[str]:
        if addresses:
            numbers = " ".join(f"{words(address)}," for address in addresses)
            lines = textwrap.wrap(numbers, _COLUMNS - 4)
            body = "".join(f"    {line}\n" for line in lines)
            yield f"static const jw_place {table}_{self.index}[] = {{\n{body}}};\n"

    def _operations(self, operations: Sequence[Compute]) -> Iterator[str]:
        for op in operations:
            names = op.spec.signature.scalars
            # A seed is the last scalar, a learning rate the first.
            seeded = len(names) if "seed" in names else 0
            rated = len(names) if "learning_rate" in names else 0
            yield (
                f"    {{{kernel_entry(op.spec.kind)}, {self.shared.attributes(op.spec)},"
                f" {self.shared.scalars(op.spec, op.scalars)},"
                f" {len(op.reads)}, {len(op.writes)}, {seeded}, {rated}}},\n"
            )

    def _actions(self, actions: Sequence[Action], operations: Sequence[Compute]) -> Iterator[str]:
        known = {_operation_key(op): index for index, op in enumerate(operations)}
        probes = moves = 0
        for number, action in enumerate(actions):
            index = 0
            match action.does:
                case Compute() as op:
                    index = known[_operation_key(op)]
                case Probe():
                    index = probes
                    probes += 1
                case Move():
                    index = moves
                    moves += 1
                case PageOut(slot=slot) | PageIn(slot=slot):
                    index = slot
                case Select(selection=index) | RowsIn(table=index) | RowsOut(table=index):
                    pass
                case _:
                    pass
            if number == len(self.plan.actions):
                yield "    /* after the step */\n"
            yield _action(action, index)

    def _slots(self) -> Iterator[str]:
        for offset, size in zip(self.layout.offsets, self.plan.slot_bytes, strict=True):
            yield f"    {{{offset}, {size}}},\n"

    def _kept(self) -> Iterator[str]:
        for kept in self.plan.kept:
            slot = "JW_NO_SLOT" if kept.slot is None else kept.slot
            yield (
                f"    {{{_place(kept.address)}, {words(kept.bytes)}, {slot}}},"
                f" {c_comment(kept.tensor)}\n"
            )

    def _selections(self) -> Iterator[str]:
        first = 0
        for selection in self.plan.selections:
            yield f"    {{{first}, {selection.indices}, {selection.rows}}},\n"
            first += selection.indices

    def _tables(self) -> Iterator[str]:
        plan = self.plan
        offsets = self.layout.table_offsets or (0,) * len(plan.tables)  # 0 for tables in RAM
        for table, offset in zip(plan.tables, offsets, strict=True):
            kept = "JW_NOT_KEPT" if table.kept is None else table.kept
            yield (
                f"    {{{offset}, {table.row_bytes}, {table.rows}, {_place(table.address)},"
                f" {kept}, {table.selection}}}, {c_comment(table.tensor)}\n"
            )

    def _frozen(self) -> Iterator[str]:
        for offset, frozen in zip(self.layout.frozen_offsets, self.plan.frozen, strict=True):
            yield f"    {{{offset}, {frozen.bytes}}}, {c_comment(frozen.tensor)}\n"

    def _memory(self, actions: int) -> Iterator[str]:
        plan, layout = self.plan, self.layout
        most = actions if self.watched_actions is None else min(actions, self.watched_actions)
        arrays = {
            "slot_checksums": ("uint32_t", len(plan.slot_bytes)),
            "packed_words": ("uint32_t", len(plan.packed_bytes)),
            "kept_checksums": ("uint32_t", len(plan.kept)),
            "frozen_checksums": ("uint32_t", len(plan.frozen)),
            "probed": ("uint32_t", min(most, len(plan.probes))),
            "spans": ("jw_span", most),
            "page": ("unsigned char", layout.page_bytes if plan.pages else 0),
            "rows": ("uint32_t", plan.selected_rows),
            "row": ("unsigned char", max(layout.row_strides, default=0)),
        }
        for name, (kind, count) in arrays.items():
            if count:
                # Drivers move whole words, and DMA whole cache lines.
                aligned = " __attribute__((aligned(64)))" if name in {"page", "row"} else ""
                yield f"static {kind} {name}_{self.index}[{count}]{aligned};"
        named = ", ".join(self._name(name, count) for name, (_, count) in arrays.items())
        yield f"static const jw_plan_memory memory_{self.index} = {{{named}, {most}}};\n"


def words(size_bytes: int) -> int:
    """An address or a size in the arena, in words. Raises :class:`ValueError` for parts of one."""
    count, rest = divmod(size_bytes, WORD_BYTES)
    if rest:
        raise ValueError(f"{size_bytes} bytes are not whole words")
    return count


def _place(address: int | None) -> str:
    return "JW_NO_PLACE" if address is None else str(words(address))


def _action(action: Action, index: int) -> str:
    verb, described = _VERBS[type(action.does)], _describe(action.does)
    address, size = _range(action.does)
    copy, asynchronous, gradient, counted = _COPIES["this step"], 0, 0, 0
    match action.does:
        case PageOut(asynchronous=asynchronous_) | RowsIn(asynchronous=asynchronous_):
            asynchronous = int(asynchronous_)
        case PageIn(of=of, asynchronous=asynchronous_):
            copy, asynchronous = _COPIES[of], int(asynchronous_)
        case Probe(what=what):
            gradient, counted = int(what == "gradient"), int(what == "zeros")
        case _:
            pass
    flags = f"{copy}, {asynchronous}, {gradient}, {counted}"
    numbers = f"{flags}, {action.waits_for}, {index}, {address}, {size}"
    return f"    {{{verb}, {numbers}}}, {c_comment(described)}\n"


_COPIES = {
    "this step": "JW_OF_THIS_STEP",
    "last step": "JW_OF_LAST_STEP",
    "frozen": "JW_OF_FROZEN",
}

_VERBS: Mapping[type[Operation], str] = {
    Compute: "JW_DO_COMPUTE",
    PageOut: "JW_DO_PAGE_OUT",
    PageIn: "JW_DO_PAGE_IN",
    Select: "JW_DO_SELECT",
    RowsIn: "JW_DO_ROWS_IN",
    RowsOut: "JW_DO_ROWS_OUT",
    Move: "JW_DO_MOVE",
    Probe: "JW_DO_PROBE",
    Guard: "JW_DO_GUARD",
    Check: "JW_DO_CHECK",
    Poison: "JW_DO_POISON",
}


def _range(operation: Operation) -> tuple[str, int]:
    """Address and words of an action; of a compute, only the address of its workspace."""
    if isinstance(operation, Compute):
        return _place(None if operation.workspace is None else operation.workspace.address), 0
    return _place(operation.block.address), words(operation.block.bytes)


def _describe(operation: Operation) -> str:
    match operation:
        case Compute(op=op):
            return op
        case Probe(tensor=tensor, what=what):
            return f"{what} {tensor}"
        case PageOut() | PageIn() | RowsIn() | RowsOut() | Move():
            return operation.tensor
        case Select():
            return "rows of this batch"
        case Check(tensor=tensor):
            return f"after {tensor}"
        case _:
            return "freed" if isinstance(operation, Poison) else "free"


def scalar_bits(name: str, value: float) -> int:
    """The 32 bits of a kernel's scalar: of a float32, or a seed unchanged.

    Args:
        name: The scalar's name; ``seed`` is an integer.
        value: Its value.
    """
    if name == "seed":
        return int(value)
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits)


def _c_float(bits: int) -> str:
    """A float32 as an exact hexadecimal constant."""
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    return f"{float(value).hex()}f"


def c_string(text: str) -> str:
    """C string literal of a text, with characters outside printable ASCII replaced."""
    escaped = re.sub(r'[\\"]', r"\\\g<0>", _printable(text))
    return f'"{escaped}"'


def c_comment(text: str) -> str:
    """C comment of a text, with characters outside printable ASCII replaced."""
    shown = _printable(text).replace("*/", "* /").replace("/*", "/ *")
    return f"/* {shown} */"


def _printable(text: str) -> str:
    """Replace characters that a compiler could misread: the board's encoding is unknown, and
    trigraphs may be active."""
    return re.sub(r"[^ -~]|\?(?=\?)", "_", text)

"""Generated files of an exported project: names and addresses as C, and the training data."""

from __future__ import annotations

import re
import struct
import textwrap
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from profiler.building.plan_source import c_comment, c_string, distinct_operations
from profiler.building.store_layout import StoreLayout
from replay.frozen import frozen_key

_WRITTEN = "/* Written by Joulewright from an execution plan; changes are lost. */"
_MAGIC = b"JWT2"

Array = NDArray[Any]


@dataclass(frozen=True)
class TrainingData:
    """Data of the training example.

    Attributes:
        initial: initial values of parameters, optimizer state and running statistics, by name.
        batches: at least one; each has a value for every other input of a step.
        rates: learning rates of the first steps, of which the last holds for all later ones; empty
            if all steps have that of the plan.
        truths: inputs that are true or false, as a step has them.
    """

    initial: Mapping[str, Array]
    batches: Sequence[Mapping[str, Array]]
    rates: Sequence[float] = ()
    truths: Collection[str] = ()


def fingerprint(plan_source: str) -> int:
    """CRC-32 of a project's ``plan.c``, which ties its files together."""
    return zlib.crc32(plan_source.encode())


def training_file(plan: ExecutionPlan, training: TrainingData, plan_fingerprint: int) -> bytes:
    """Contents of ``training.bin``, whose format ``project/main.c`` describes.

    Raises :class:`ValueError` if the size of a value is not that in the plan.
    """
    key = frozen_key(plan, training.initial) if plan.is_frozen else 0
    header = _MAGIC + struct.pack("<IIQ", plan_fingerprint, len(training.batches), key)
    frozen = (_words(training.initial[each.tensor], each.bytes) for each in plan.frozen)
    tables = (_words(training.initial[each.tensor], each.bytes) for each in plan.frozen_tables)
    kept = (_words(training.initial[each.tensor], plan.whole_bytes(each)) for each in plan.kept)
    inputs = (
        _words(batch[name] if name in batch else training.initial[name], block.bytes)
        for batch in training.batches
        for name, block in plan.inputs.items()
    )
    return b"".join((header, *frozen, *tables, *kept, *inputs))


def _words(value: Array, size_bytes: int) -> bytes:
    content = np.ascontiguousarray(value, value.dtype.newbyteorder("<")).tobytes()
    if len(content) != size_bytes:
        raise ValueError(f"a value has {len(content)} bytes, the plan has {size_bytes} for it")
    return content


# --- plan_addresses.h -----------------------------------------------------------------------------


def addresses_header(plan: ExecutionPlan, layout: StoreLayout, training: TrainingData) -> str:
    """Contents of ``plan_addresses.h``: what a firmware writes or reads, as constants."""
    names = _Names()
    lines = [
        _WRITTEN,
        "#ifndef PLAN_ADDRESSES_H",
        "#define PLAN_ADDRESSES_H",
        "",
        "/* Size of the arena in RAM, aligned to 64 bytes. Addresses count from its start. */",
        f"#define JW_ARENA_BYTES {plan.arena_bytes}u",
        "",
        "/* Least size of the storage: it holds the last complete step and the next one. */",
        f"#define JW_STORAGE_BYTES {layout.least_scratch_bytes}u",
        "",
        "/* Inputs, to be written before every step. */",
    ]
    for name, block in plan.inputs.items():
        constant = names.of("INPUT", name)
        value = training.batches[0].get(name, training.initial.get(name))
        meaning = "; 0 if true, -infinity if false" if name in training.truths else ""
        lines += [
            c_comment(f"{name}: {_described(value)}{meaning}"),
            f"#define {constant} {block.address}u",
            f"#define {constant}_BYTES {block.bytes}u",
        ]
    lines += ["", "/* Losses, float32, valid after a step until the next one begins. */"]
    lines += [
        f"#define {names.of('LOSS')} {probe.block.address}u"
        for probe in plan.probes
        if probe.what == "loss"
    ]
    lines += [
        "",
        "/* Tensors kept from step to step: the number in jw_plan.kept, for jw_store_keep and",
        " * jw_store_fetch, and the address in RAM between steps, unless its home is storage. */",
    ]
    for number, kept in enumerate(plan.kept):
        lines.append(c_comment(f"{kept.tensor}: {_described(training.initial[kept.tensor])}"))
        lines.append(f"#define {names.of('KEPT', kept.tensor)} {number}")
        if kept.address is not None:
            lines.append(f"#define {names.of('RAM', kept.tensor)} {kept.address}u")
    if plan.frozen:
        lines += [
            "",
            "/* Tensors in storage that no step changes: the number in jw_plan.frozen, for",
            " * jw_store_freeze. */",
        ]
    for number, frozen in enumerate(plan.frozen):
        lines.append(c_comment(f"{frozen.tensor}: {_described(training.initial[frozen.tensor])}"))
        lines.append(f"#define {names.of('FROZEN', frozen.tensor)} {number}")
    if plan.tables:
        lines += [
            "",
            "/* Tables, of which a step reads only the rows that its batch names: the number in",
            " * jw_plan.tables, for jw_store_keep_rows and jw_store_fetch_rows. */",
        ]
    for number, table in enumerate(plan.tables):
        lines.append(f"#define {names.of('TABLE', table.tensor)} {number}")
    return "\n".join([*lines, "", "#endif", ""])


class _Names:
    """Makes names of C constants; neither a name nor its size's ``_BYTES`` is given twice."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, *words: str) -> str:
        stem = re.sub(r"[^A-Z0-9]", "_", "_".join(("JW", *words)).upper())
        name, number = stem, 1
        while name in self._taken or f"{name}_BYTES" in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.update((name, f"{name}_BYTES"))
        return name


def _described(value: Array | None) -> str:
    assert value is not None
    return f"{value.dtype.name} {list(value.shape)}"


# --- plan_values.c --------------------------------------------------------------------------------


def workspace_queries(registry: str) -> dict[str, str]:
    """C functions that return the workspace of a kind, from the text of ``kernels/registry.c``.

    Kinds that never need workspace are absent.
    """
    row = r'\{"([\w.]+)",\s*\d+,\s*\d+,\s*\w+,\s*(\w+)\}'
    return {kind: query for kind, query in re.findall(row, registry) if query != "NULL"}


def values_source(
    plan: ExecutionPlan,
    workspace_bytes: Mapping[OpSpec, int],
    queries: Mapping[str, str],
    plan_fingerprint: int,
    rates: Sequence[float] = (),
) -> str:
    """Contents of ``plan_values.c``, which defines what ``project/plan_values.h`` declares.

    Args:
        plan: the plan.
        workspace_bytes: workspace by operation, with which the plan was lowered.
        queries: the functions of :func:`workspace_queries`.
        plan_fingerprint: the :func:`fingerprint` of ``plan.c``.
        rates: as in :class:`TrainingData`.
    """
    inputs = [
        f"{{{c_string(name)}, {block.address}, {block.bytes}}}"
        for name, block in plan.inputs.items()
    ]
    losses = [
        f"{{{c_string(probe.tensor)}, {probe.block.address}, {probe.block.bytes}}}"
        for probe in plan.probes
        if probe.what == "loss"
    ]
    kept = [c_string(each.tensor) for each in plan.kept]
    frozen = [c_string(each.tensor) for each in plan.frozen]
    probes = [c_string(f"{probe.what} {probe.tensor}") for probe in plan.probes]
    lines = [
        _WRITTEN,
        '#include "plan_values.h"',
        "",
        '#include "kernels.h"',
        "",
        *_table("const plan_value plan_inputs", inputs, "{NULL, 0, 0}"),
        *_table("const plan_value plan_losses", losses, "{NULL, 0, 0}"),
        *_table("const char *const plan_kept_names", kept, "NULL"),
        *_table("const char *const plan_frozen_names", frozen, "NULL"),
        *_table("const char *const plan_probe_names", probes, "NULL"),
        f"const uint32_t plan_fingerprint = 0x{plan_fingerprint:08x}u;",
        "",
        *_learning_rate(rates),
        "typedef struct {",
        "    const char *name;",
        "    size_t (*needed)(const int32_t *attributes);",
        "    uint32_t operation, bytes; /* index in jw_plan.operations; workspace in the plan */",
        "} workspace;",
        "",
        *_table("static const workspace workspaces", _workspaces(plan, workspace_bytes, queries),
                "{NULL, NULL, 0, 0}"),
        "const char *plan_lacks_workspace(void) {",
        "    const jw_operation *operations = jw_plans[0]->operations;",
        "    const workspace *has = workspaces;",
        "    while (has->name &&",
        "           has->needed(operations[has->operation].attributes) <= has->bytes) {",
        "        has++;",
        "    }",
        "    return has->name;",
        "}",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _learning_rate(rates: Sequence[float]) -> Iterator[str]:
    """Definition of the function that ``project/plan_values.h`` declares."""
    if not rates:
        yield from ("const float *plan_learning_rate(uint32_t step) {", "    (void)step;")
        yield from ("    return NULL;", "}", "")
        return
    numbers = textwrap.wrap(" ".join(f"{float(np.float32(rate)).hex()}f," for rate in rates), 96)
    yield from (
        "const float *plan_learning_rate(uint32_t step) {",
        "    static const float rates[] = {",
    )
    yield from (f"        {line}" for line in numbers)
    yield from (
        "    };",
        f"    return &rates[step < {len(rates)}u ? step : {len(rates) - 1}u];",
        "}",
        "",
    )


def _workspaces(
    plan: ExecutionPlan, workspace_bytes: Mapping[OpSpec, int], queries: Mapping[str, str]
) -> Iterator[str]:
    """Rows of the table of workspaces, one for each distinct operation that may need some."""
    seen: set[OpSpec] = set()
    for number, op in enumerate(distinct_operations(plan)):
        query = queries.get(op.spec.kind)
        if query is not None and op.spec not in seen:
            seen.add(op.spec)
            yield f"{{{c_string(op.op)}, {query}, {number}, {workspace_bytes[op.spec]}}}"


def _table(declared: str, rows: Sequence[str] | Iterator[str], end: str) -> list[str]:
    return [f"{declared}[] = {{", *(f"    {row}," for row in (*rows, end)), "};", ""]

"""The files of an exported project that are made for its plan: names and addresses as C, and the
data that its example trains on."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from profiler.building.plan_source import c_comment, c_string
from profiler.building.store_layout import StoreLayout

_WRITTEN = "/* Written by Joulewright from an execution plan; changes are lost. */"
_MAGIC = b"JWT1"

Array = NDArray[Any]


@dataclass(frozen=True)
class TrainingData:
    """``initial``: of parameters, optimizer state and running statistics, by name. ``batches``:
    each with a value for every other input of a step; at least one."""

    initial: Mapping[str, Array]
    batches: Sequence[Mapping[str, Array]]


def fingerprint(plan_source: str) -> int:
    """By which a project's parts know each other: CRC-32 of its ``plan.c``."""
    return zlib.crc32(plan_source.encode())


def training_file(plan: ExecutionPlan, training: TrainingData, plan_fingerprint: int) -> bytes:
    """``training.bin``, whose format ``project/main.c`` describes. Raises :class:`ValueError` if a
    value has not the size that the plan has for it."""
    header = _MAGIC + struct.pack("<II", plan_fingerprint, len(training.batches))
    kept = (_words(training.initial[each.tensor], each.bytes) for each in plan.kept)
    inputs = (
        _words(batch[name] if name in batch else training.initial[name], block.bytes)
        for batch in training.batches
        for name, block in plan.inputs.items()
    )
    return b"".join((header, *kept, *inputs))


def _words(value: Array, size_bytes: int) -> bytes:
    content = np.ascontiguousarray(value, value.dtype.newbyteorder("<")).tobytes()
    if len(content) != size_bytes:
        raise ValueError(f"a value of {len(content)} bytes is to fill {size_bytes}")
    return content


# --- plan_addresses.h -----------------------------------------------------------------------------


def addresses_header(plan: ExecutionPlan, layout: StoreLayout, training: TrainingData) -> str:
    """Everything that a firmware brings or fetches, as constants."""
    names = _Names()
    lines = [
        _WRITTEN,
        "#ifndef PLAN_ADDRESSES_H",
        "#define PLAN_ADDRESSES_H",
        "",
        "/* Of RAM, aligned to 64 bytes. Addresses count from its begin. */",
        f"#define JW_ARENA_BYTES {plan.arena_bytes}u",
        "",
        "/* Of storage, at least: the last complete step, and the one that is being written. */",
        f"#define JW_STORAGE_BYTES {layout.least_scratch_bytes}u",
        "",
        "/* To be brought in front of every step. */",
    ]
    for name, block in plan.inputs.items():
        constant = names.of("INPUT", name)
        value = training.batches[0].get(name, training.initial.get(name))
        lines += [
            c_comment(f"{name}: {_described(value)}"),
            f"#define {constant} {block.address}u",
            f"#define {constant}_BYTES {block.bytes}u",
        ]
    lines += ["", "/* float32, there when a step is over, until the next one begins. */"]
    lines += [
        f"#define {names.of('LOSS')} {probe.block.address}u"
        for probe in plan.probes
        if probe.what == "loss"
    ]
    lines += [
        "",
        "/* What a step leaves to the next one: its number in jw_plan.kept, for jw_store_keep and",
        " * jw_store_fetch; where it is in RAM between steps, unless it lives in storage. */",
    ]
    for number, kept in enumerate(plan.kept):
        lines.append(c_comment(f"{kept.tensor}: {_described(training.initial[kept.tensor])}"))
        lines.append(f"#define {names.of('KEPT', kept.tensor)} {number}")
        if kept.address is not None:
            lines.append(f"#define {names.of('RAM', kept.tensor)} {kept.address}u")
    return "\n".join([*lines, "", "#endif", ""])


class _Names:
    """Constants of C, of which no two are the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, *words: str) -> str:
        stem = re.sub(r"[^A-Z0-9]", "_", "_".join(("JW", *words)).upper())
        name, number = stem, 1
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.update((name, f"{name}_BYTES"))
        return name


def _described(value: Array | None) -> str:
    assert value is not None
    return f"{value.dtype.name} {list(value.shape)}"


# --- plan_values.c --------------------------------------------------------------------------------


def workspace_queries(registry: str) -> dict[str, str]:
    """The C functions that say how much workspace a kind needs, from the text of
    ``kernels/registry.c``; absent for kinds that never need any."""
    row = r'\{"([\w.]+)",\s*\d+,\s*\d+,\s*\w+,\s*(\w+)\}'
    return {kind: query for kind, query in re.findall(row, registry) if query != "NULL"}


def values_source(
    plan: ExecutionPlan,
    workspace_bytes: Mapping[OpSpec, int],
    queries: Mapping[str, str],
    plan_fingerprint: int,
) -> str:
    """What ``project/plan_values.h`` declares. ``workspace_bytes`` is what the plan was made
    with."""
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
        *_table("const char *const plan_probe_names", probes, "NULL"),
        f"const uint32_t plan_fingerprint = 0x{plan_fingerprint:08x}u;",
        "",
        "typedef struct {",
        "    const char *name;",
        "    size_t (*needed)(const int32_t *attributes);",
        "    uint32_t compute, bytes; /* of jw_plan.computes; that the plan has for it */",
        "} workspace;",
        "",
        *_table("static const workspace workspaces", _rooms(plan, workspace_bytes, queries),
                "{NULL, NULL, 0, 0}"),
        "const char *plan_lacks_workspace(void) {",
        "    const jw_compute *computes = jw_plans[0]->computes;",
        "    const workspace *has = workspaces;",
        "    while (has->name && has->needed(computes[has->compute].attributes) <= has->bytes) {",
        "        has++;",
        "    }",
        "    return has->name;",
        "}",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _rooms(
    plan: ExecutionPlan, workspace_bytes: Mapping[OpSpec, int], queries: Mapping[str, str]
) -> Iterator[str]:
    """Each distinct operation once."""
    seen: set[OpSpec] = set()
    for number, op in enumerate(plan.computes):
        query = queries.get(op.spec.kind)
        if query is not None and op.spec not in seen:
            seen.add(op.spec)
            yield f"{{{c_string(op.op)}, {query}, {number}, {workspace_bytes[op.spec]}}}"


def _table(declared: str, rows: Sequence[str] | Iterator[str], end: str) -> list[str]:
    return [f"{declared}[] = {{", *(f"    {row}," for row in (*rows, end)), "};", ""]

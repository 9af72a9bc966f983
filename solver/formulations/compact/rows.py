"""Rows of the compact program: availability, consumption, and memory by stage.

Memory rows are those at the last op of a stage and those throughout it; rows for memory during a
recomputation are in :mod:`solver.formulations.compact.cuts`. Columns are documented in
:mod:`solver.formulations.compact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solver.engines.program import Program, Sense, Terms
from solver.formulations.compact.columns import CompactColumns, recomputing_stages
from solver.formulations.memory import MemoryRows


@dataclass(frozen=True)
class DerivedColumn:
    """A continuous column equal to the sum of ``terms``, or 0 if that is negative."""

    column: int
    terms: Terms


def add_rows(columns: CompactColumns, memory: MemoryRows, program: Program) -> list[DerivedColumn]:
    """Add all rows except deadline and cuts; return the continuous columns added for them."""
    _add_availability(columns, program)
    _add_consumption(columns, program)
    derived: list[DerivedColumn] = []
    for stage in range(columns.outline.stage_count):
        _add_stage_memory(columns, memory, stage)
        derived += _add_throughout_memory(columns, memory, program, stage)
    return derived


def limit_memory(
    columns: CompactColumns, memory: MemoryRows, terms: Terms, constant_bytes: int, stage: int
) -> None:
    """Limit ``terms``, ``constant_bytes`` and the tensors that stay in ``stage`` to the budget."""
    standing_bytes = columns.outline.standing[stage]
    if columns.budget is not None:
        memory.add([*terms, (columns.budget, -1.0)], -constant_bytes - standing_bytes)
    else:
        budget_bytes = memory.scale.whole_grains(columns.problem.budget.ram_bytes - standing_bytes)
        memory.add(terms, budget_bytes - constant_bytes)


def _add_row(
    program: Program, plus: Sequence[int], minus: Sequence[int], sense: Sense, right_side: float
) -> None:
    terms = [(column, 1.0) for column in plus] + [(column, -1.0) for column in minus]
    program.row(terms, sense, right_side)


# --- availability ---------------------------------------------------------------------------------


def _add_availability(columns: CompactColumns, program: Program) -> None:
    problem, stays_until = columns.problem, columns.outline.stays_until
    reads, readers = columns.outline.accesses.reads, columns.outline.accesses.readers
    for stage in range(columns.outline.stage_count):
        for i in reads[stage]:
            if stage > stays_until[i]:
                _add_row(program, columns.sources(stage, i), [], "=", 1.0)
    for (stage, k), column in columns.recompute.items():
        for i in problem.reads[k]:
            if stage > stays_until[i]:
                _add_row(program, [column], columns.sources(stage, i), "<", 0.0)
        used = _uses_within(columns, stage, k)
        if used is not None:
            _add_row(program, [column], used, "<", 0.0)
    for (stage, i), column in columns.page_in.items():
        if i in columns.page_out:
            _add_row(program, [column], [columns.page_out[i]], "<", 0.0)
        if stage not in readers[i]:
            _add_row(program, [column], columns.recomputed(stage, readers[i]), "<", 0.0)
    for (stage, i), column in columns.retain.items():
        if stage > max(problem.producer[i], stays_until[i], -1) + 1:
            sources = columns.sources(stage - 1, i)
            reads_it = stage - 1 in readers[i]  # a row for its availability exists already
            if column not in sources and not reads_it:
                _add_row(program, [column], sources, "<", 0.0)
    for stage in range(columns.outline.stage_count):
        for i in range(len(problem.graph.tensors)):
            # Two sources for one tensor are dominated by one.
            sources = columns.sources(stage, i)
            if len(sources) > 1 and stage not in readers[i] and stage > stays_until[i]:
                _add_row(program, sources, [], "<", 1.0)


def _uses_within(columns: CompactColumns, stage: int, k: int) -> list[int] | None:
    """Columns that use a recomputation of ``k`` in ``stage``; None if it is always used."""
    used = []
    for i in columns.problem.writes[k]:
        if stage <= columns.outline.stays_until[i]:
            continue
        readers = columns.outline.accesses.readers[i]
        if stage in readers:
            return None
        used += columns.recomputed(stage, readers) + columns.retained_after(stage, i)
    return used


def _add_consumption(columns: CompactColumns, program: Program) -> None:
    """Forbid to retain a tensor that an op writes over, or to read it later in the same stage."""
    for k, consumed in enumerate(columns.problem.consumes):
        for i in consumed:
            for retained in columns.retained_after(k, i):
                program.upper[retained] = 0.0
            readers = columns.outline.accesses.readers[i]
            for stage in recomputing_stages(columns.outline, columns.recompute, k):
                column = columns.recompute[stage, k]
                if stage in readers:
                    program.upper[column] = 0.0
                later_readers = columns.recomputed(stage, [j for j in readers if j > k])
                for other in (*later_readers, *columns.retained_after(stage, i)):
                    _add_row(program, [column, other], [], "<", 1.0)


# --- memory ---------------------------------------------------------------------------------------


def _add_stage_memory(columns: CompactColumns, memory: MemoryRows, stage: int) -> None:
    """Limit memory at the last op of a stage: what the op touches and what is retained after it."""
    touched = columns.outline.accesses.touched(stage)
    terms = [
        (retained, size / memory.scale.unit_bytes)
        for i, size in enumerate(columns.outline.size)
        if i not in touched and size
        for retained in columns.retained_after(stage, i)
    ]
    limit_memory(columns, memory, terms, columns.outline.footprint[stage], stage)


def _add_throughout_memory(
    columns: CompactColumns, memory: MemoryRows, program: Program, stage: int
) -> list[DerivedColumn]:
    """Limit memory at each recomputation in a stage.

    RAM holds what the op touches, and at least the tensors that are in RAM from the beginning of
    the stage to its end. One column is the sum of the latter.
    """
    outline = columns.outline
    recomputed = [k for k in range(stage) if (stage, k) in columns.recompute]
    if not recomputed:
        return []
    throughout, derived = _throughout(columns, program, stage)
    if not throughout:
        return []
    size = {i: outline.size[i] / memory.scale.unit_bytes for i in throughout}
    total = program.column(upper=sum(size.values()), integer=False)
    parts = [(column, size[i]) for i, column in throughout.items()]
    program.row([(total, 1.0), *((column, -share) for column, share in parts)], "=", 0.0)
    for k in recomputed:
        op_bytes = outline.footprint[k] / memory.scale.unit_bytes
        touched = [i for i in outline.accesses.touched(k) if i in throughout]
        terms = [
            (total, 1.0),
            (columns.recompute[stage, k], op_bytes),
            *((throughout[i], -size[i]) for i in touched),
        ]
        limit_memory(columns, memory, terms, 0, stage)
    return [*derived, DerivedColumn(total, parts)]


def _throughout(
    columns: CompactColumns, program: Program, stage: int
) -> tuple[dict[int, int], list[DerivedColumn]]:
    """Columns that are 1 if a tensor is in RAM from the beginning of ``stage`` to its end.

    Returns them by tensor, and those that had to be added.
    """
    throughout: dict[int, int] = {}
    derived: list[DerivedColumn] = []
    for i, size in enumerate(columns.outline.size):
        if (stage, i) not in columns.retain or not size:
            continue
        retained = columns.retain[stage, i]
        after = columns.retain.get((stage + 1, i))
        if stage in columns.outline.accesses.readers[i] or after == retained:
            throughout[i] = retained
        elif after is not None:
            others = [column for column in columns.sources(stage, i) if column != retained]
            throughout[i] = after
            if others:
                throughout[i] = program.column(integer=False)
                _add_row(program, [throughout[i], *others], [after], ">", 0.0)
                terms = [(after, 1.0), *((column, -1.0) for column in others)]
                derived.append(DerivedColumn(throughout[i], terms))
    return throughout, derived

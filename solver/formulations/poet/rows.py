"""Rows of POET's program: needs of ops, retention and paging, and memory within a stage.

Columns are documented in :mod:`solver.formulations.poet`.
"""

from __future__ import annotations

from solver.engines.program import Program, Terms
from solver.formulations.memory import MemoryRows
from solver.formulations.poet.columns import PoetColumns


def add_rows(columns: PoetColumns, memory: MemoryRows, program: Program) -> list[tuple[int, Terms]]:
    """Add all rows except those for the deadline.

    Returns the terms that define each column of U, in an order in which they can be evaluated.
    """
    _add_needs(columns, program)
    _add_retention(columns, program)
    _add_paging(columns, program)
    _add_consumption(columns, program)
    for key in columns.free_e:
        _add_freeing(columns, program, *key)
    u_terms: list[tuple[int, Terms]] = []
    for stage in range(columns.stage_count):
        u_terms += _add_stage_memory(columns, memory, program, stage)
    _add_memory_at_start(columns, memory)
    return u_terms


def _add_needs(columns: PoetColumns, program: Program) -> None:
    for (stage, k), column in columns.r.items():
        for i in columns.accesses.reads[k]:
            m_in = columns.m_in.get((stage, i))
            needed = [c for c in columns.sources(stage, i) if c != m_in]
            needed += columns.paged_in_by(stage, i, k)
            program.row([(column, 1.0), *((c, -1.0) for c in needed)], "<", 0.0)


def _add_retention(columns: PoetColumns, program: Program) -> None:
    for (stage, i), column in columns.s_ram.items():
        if stage > 0:
            sources = columns.sources(stage - 1, i)
            program.row([(column, 1.0), *((c, -1.0) for c in sources)], "<", 0.0)


def _add_paging(columns: PoetColumns, program: Program) -> None:
    problem = columns.problem
    for (stage, i), column in columns.s_sd.items():
        if stage > 0 and not problem.starts_in_storage[i]:
            before = [columns.m_out[stage - 1, i]]
            if (stage - 1, i) in columns.s_sd:
                before.append(columns.s_sd[stage - 1, i])
            program.row([(column, 1.0), *((c, -1.0) for c in before)], "<", 0.0)
    for (stage, i), column in columns.m_in.items():
        program.row([(column, 1.0), (columns.s_sd[stage, i], -1.0)], "<", 0.0)
        moments = columns.paged_in_by(stage, i, stage)
        program.row([(column, -1.0), *((c, 1.0) for c in moments)], "=", 0.0)
    for (stage, _, k), column in columns.in_e.items():
        program.row([(column, 1.0), (columns.r[stage, k], -1.0)], "<", 0.0)
    for (stage, i), column in columns.m_out.items():
        # In its first stage a tensor has just been written or exists already.
        if stage > max(problem.producer[i], 0):
            program.row([(column, 1.0), (columns.s_ram[stage, i], -1.0)], "<", 0.0)
    for i, must_page_out in enumerate(problem.must_page_out):
        if must_page_out:
            stages = range(max(problem.producer[i], 0), columns.stage_count)
            program.row([(columns.m_out[stage, i], 1.0) for stage in stages], ">", 1.0)


def _add_consumption(columns: PoetColumns, program: Program) -> None:
    """Forbid to retain a tensor that an op writes over.

    No later op in the graph's order reads it.
    """
    for k, consumed in enumerate(columns.problem.consumes):
        for i in consumed:
            for stage in range(k, columns.stage_count - 1):
                after = columns.s_ram[stage + 1, i]
                program.row([(columns.r[stage, k], 1.0), (after, 1.0)], "<", 1.0)


def _add_freeing(columns: PoetColumns, program: Program, stage: int, i: int, k: int) -> None:
    """Make Free_E 1 exactly if no hazard forbids it (Checkmate, equations 5a and 5b).

    The rows are linear in the number of hazards; that op ``k`` is not computed is one of them.
    """
    hazards = columns.hazards(stage, i, k)
    free, computed = columns.free_e[stage, i, k], columns.r[stage, k]
    terms = [(computed, -1.0), *((c, 1.0) for c in hazards)]
    most = 1.0 + len(hazards)
    program.row([(free, 1.0), *terms], ">", 0.0)
    program.row([(free, most), *terms], "<", most - 1.0)


def _add_stage_memory(
    columns: PoetColumns, memory: MemoryRows, program: Program, stage: int
) -> list[tuple[int, Terms]]:
    """Define U: bytes in RAM while op ``k`` runs, without workspace and in-place sharing."""
    size, unit_bytes = columns.problem.size, memory.scale.unit_bytes
    budget_bytes = memory.scale.whole_grains(columns.problem.budget.ram_bytes)
    u_terms: list[tuple[int, Terms]] = []
    before = [
        (columns.s_ram[stage, i], bytes_ / unit_bytes)
        for i, bytes_ in enumerate(size)
        if bytes_ and (stage, i) in columns.s_ram
    ]
    for k in range(stage + 1):
        written_bytes = sum(size[i] for i in columns.accesses.writes[k])
        u, computed = columns.u[stage, k], columns.r[stage, k]
        terms = [
            *before,
            (computed, written_bytes / unit_bytes),
            *(
                (columns.in_e[stage, i, k], size[i] / unit_bytes)
                for i in columns.accesses.reads[k]
                if size[i] and (stage, i, k) in columns.in_e
            ),
        ]
        program.row([(u, -1.0), *terms], "=", 0.0)
        u_terms.append((u, terms))
        memory.add([(u, 1.0), (computed, columns.extra_bytes[k] / unit_bytes)], budget_bytes)
        before = [(u, 1.0)]
        if k < stage:
            before += [
                (columns.free_e[stage, i, k], -size[i] / unit_bytes)
                for i in columns.may_free_after[k]
            ]
    return u_terms


def _add_memory_at_start(columns: PoetColumns, memory: MemoryRows) -> None:
    problem = columns.problem
    starts = zip(problem.size, problem.starts_in_ram, strict=True)
    start_bytes = sum(size for size, in_ram in starts if in_ram)
    budget_bytes = memory.scale.whole_grains(problem.budget.ram_bytes)
    memory.add([(columns.r[0, 0], start_bytes / memory.scale.unit_bytes)], budget_bytes)

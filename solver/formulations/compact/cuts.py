"""Cuts of the compact program: memory during a recomputation, added where the budget is exceeded.

While op ``k`` runs in stage ``t``, RAM holds what ``k`` reads and writes, and every other tensor
that is available before ``k`` and needed after it. The bytes of these are bounded from below
without further columns. A tensor is needed if it is retained into the next stage or if a later op
of the stage reads it. A needed tensor is available before ``k`` unless it is recomputed or paged in
after ``k``, and certainly if an op of the stage before ``k`` reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from solver.formulations.compact.columns import CompactColumns
from solver.formulations.compact.rows import limit_memory
from solver.formulations.memory import MemoryRows

# Smallest fraction, and smallest violation relative to the budget, that counts.
_NOTICEABLE = 1e-6


class Presence(NamedTuple):
    """Lower bound on whether ``tensor`` is in RAM while an op runs.

    The columns ``plus`` minus the columns ``minus`` plus ``constant`` are at most 1 if it is, and
    at most 0 if it is not.
    """

    tensor: int
    plus: tuple[int, ...]
    minus: tuple[int, ...]
    constant: int

    def value(self, values: Sequence[float]) -> float:
        """Value of the bound at a solution."""
        value = self.constant + sum([values[column] for column in self.plus])
        return value - sum([values[column] for column in self.minus])


class Cut(NamedTuple):
    """A memory row for op ``k`` in ``stage``; ``present`` are tensors that ``k`` does not use."""

    stage: int
    k: int
    present: tuple[Presence, ...]


def violated_cuts(
    columns: CompactColumns,
    values: Sequence[float],
    ram_bytes: int,
    per_stage: int,
    known: Collection[Cut],
) -> Iterator[Cut]:
    """Find cuts, not among ``known``, that a (possibly fractional) solution violates.

    It violates a cut if RAM exceeds ``ram_bytes`` during a recomputation. For each stage the
    ``per_stage`` most violated cuts are returned.
    """
    for stage in range(1, columns.outline.stage_count):
        candidates = list(_candidates(columns, stage, values))
        violated = []
        for k in range(stage):
            column = columns.recompute.get((stage, k))
            if column is None or values[column] < _NOTICEABLE:
                continue
            cut, bytes_during = _strongest_cut(columns, stage, k, candidates, values)
            excess = bytes_during + columns.outline.standing[stage] - ram_bytes
            if excess > _NOTICEABLE * ram_bytes and cut not in known:
                violated.append((excess, cut))
        violated.sort(key=lambda candidate: -candidate[0])
        yield from (cut for _, cut in violated[:per_stage])


def add_cut(columns: CompactColumns, memory: MemoryRows, cut: Cut) -> None:
    """Add the row of ``cut`` to the program."""
    outline, unit_bytes = columns.outline, memory.scale.unit_bytes
    terms = [(columns.recompute[cut.stage, cut.k], outline.footprint[cut.k] / unit_bytes)]
    constant_bytes = 0
    for part in cut.present:
        size = outline.size[part.tensor] / unit_bytes
        terms += [(column, size) for column in part.plus]
        terms += [(column, -size) for column in part.minus]
        constant_bytes += part.constant * outline.size[part.tensor]
    limit_memory(columns, memory, terms, constant_bytes, cut.stage)


class _Candidate(NamedTuple):
    """A tensor that may be in RAM in a stage.

    ``made`` is the op that writes it, ``remade`` the column that recomputes that op, ``paged_in``
    the column that pages it in. ``readers`` are the ops that read it and may be recomputed, with
    their columns. ``needed_after`` are the columns that need it at the end of the stage, None if
    the last op of the stage reads it.
    """

    tensor: int
    made: int
    remade: int | None
    paged_in: int | None
    readers: list[tuple[int, int]]
    needed_after: list[int] | None


def _candidates(
    columns: CompactColumns, stage: int, values: Sequence[float]
) -> Iterator[_Candidate]:
    """Tensors written before ``stage`` that a solution has in RAM, at least in part, during it."""
    recompute = columns.recompute
    for i, size in enumerate(columns.outline.size):
        made, readers = columns.problem.producer[i], columns.outline.accesses.readers[i]
        if not size or made >= stage:
            continue
        if any(values[column] > _NOTICEABLE for column in columns.sources(stage, i)):
            yield _Candidate(
                tensor=i,
                made=made,
                remade=recompute.get((stage, made)),
                paged_in=columns.page_in.get((stage, i)),
                readers=[(j, recompute[stage, j]) for j in readers if (stage, j) in recompute],
                needed_after=None if stage in readers else columns.retained_after(stage, i),
            )


def _strongest_cut(
    columns: CompactColumns,
    stage: int,
    k: int,
    candidates: Sequence[_Candidate],
    values: Sequence[float],
) -> tuple[Cut, float]:
    """The cut for op ``k`` in ``stage`` with the most bytes at a solution, and these bytes."""
    touched = columns.outline.accesses.touched(k)
    total_bytes = columns.outline.footprint[k] * values[columns.recompute[stage, k]]
    chosen: list[Presence] = []
    for candidate in candidates:
        if candidate.tensor in touched:
            continue
        best, best_value = None, _NOTICEABLE
        for presence in _presences(candidate, k):
            value = presence.value(values)
            if value > best_value:
                best, best_value = presence, value
        if best is not None:
            chosen.append(best)
            total_bytes += columns.outline.size[candidate.tensor] * best_value
    return Cut(stage, k, tuple(chosen)), total_bytes


def _presences(candidate: _Candidate, k: int) -> Iterator[Presence]:
    """All lower bounds on whether a tensor is in RAM while op ``k`` runs."""
    i, made, remade, paged_in, readers, needed_after = candidate
    late: tuple[int, ...] = () if remade is None or made <= k else (remade,)
    earlier: list[int] = []
    if paged_in is not None:
        late = (*late, paged_in)
        earlier = [column for j, column in readers if j < k]
    needs: list[tuple[tuple[int, ...], int]] = [((), 1)]
    if needed_after is not None:
        needs = [((column,), 0) for j, column in readers if j > k]
        needs += [((column,), 0) for column in needed_after]
    for plus, constant in needs:
        yield Presence(i, plus, late, constant)
        for column in earlier:
            yield Presence(i, (*plus, column), (), constant - 1)

"""Which part each activity has in each reading of a meter, summed up over blocks of steps.

Steps are tiled by spans of activities: operations, transfers, checksums, the executor's own work,
and the time until the next step begins. A reading is a weighted mean of the power over some time
(:mod:`profiler.meters.readings`), so that its row of the design holds, for every activity, the
weight that falls on its spans. A row counts only if the spans cover all that its reading remembers.

Least squares need products of columns only. They are kept for each block, so that blocks can be
left out, and so that the design of a fast instrument never exists whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiler.meters.readings import Readings, Response

# Largest weight of a reading on time without a span.
_UNCOVERED = 2e-3

# Rows of the design that exist at a time.
_ROWS = 1 << 15

# Shift with which the design is differentiated, as a share of what a reading remembers.
_SMALL_SHIFT = 0.02


@dataclass(frozen=True)
class Spans:
    """Spans of activities, in seconds on the time base of the readings.

    Attributes:
        activities: names; ``activity`` has indices into them.
        activity: intp [spans].
        start_s: float64 [spans].
        end_s: float64 [spans].
        beside: bool [spans]: the span runs beside others, and its power comes on top of theirs.
        block: intp [spans]: number of the block of steps that a span belongs to.
        blocks_s: float64 [blocks + 1]: where blocks begin and the last one ends.
        steps: int64 [blocks]: number of steps.
    """

    activities: tuple[str, ...]
    activity: NDArray[np.intp]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    beside: NDArray[np.bool_]
    block: NDArray[np.intp]
    blocks_s: NDArray[np.float64]
    steps: NDArray[np.int64]

    @property
    def times_s(self) -> NDArray[np.float64]:
        """[blocks, activities] seconds of each activity."""
        blocks, count = len(self.blocks_s) - 1, len(self.activities)
        times_s = np.zeros((blocks, count))
        np.add.at(times_s, (self.block, self.activity), self.end_s - self.start_s)
        return times_s

    def during(self, start_s: float, end_s: float) -> Spans:
        """Spans that overlap an interval."""
        chosen = (self.end_s > start_s) & (self.start_s < end_s)
        return Spans(
            self.activities,
            self.activity[chosen],
            self.start_s[chosen],
            self.end_s[chosen],
            self.beside[chosen],
            self.block[chosen],
            self.blocks_s,
            self.steps,
        )


@dataclass(frozen=True)
class Products:
    """Sums over the rows of each block.

    Attributes:
        columns: float64 [blocks, 2 G, 2 G]: products of columns. The first G columns are the
            weights of the G activities, the others their derivatives by a shift of the readings.
        powers: float64 [blocks, 2 G]: products of columns and readings.
        squares: float64 [blocks]: squares of readings.
        rows: int64 [blocks].
    """

    columns: NDArray[np.float64]
    powers: NDArray[np.float64]
    squares: NDArray[np.float64]
    rows: NDArray[np.int64]

    def merged(self, groups: NDArray[np.float64]) -> Products:
        """Products in which the activities of a group are one.

        Args:
            groups: [groups, activities]: 1 where a group holds an activity.
        """
        both = np.kron(np.eye(2), groups)
        return Products(both @ self.columns @ both.T, self.powers @ both.T, self.squares, self.rows)


def products(readings: Readings, response: Response, spans: Spans, shift_s: float) -> Products:
    """Sum up the design of all readings that the spans cover.

    Args:
        readings: the readings.
        response: what each of them is a mean of.
        spans: the spans of the activities.
        shift_s: correction that is added to the times of the readings.
    """
    blocks, size = len(spans.blocks_s) - 1, 2 * len(spans.activities)
    columns, powers = np.zeros((blocks, size, size)), np.zeros((blocks, size))
    squares, rows = np.zeros(blocks), np.zeros(blocks, dtype=np.int64)
    small_s = _SMALL_SHIFT * response.width_s
    middle_s = (response.youngest_s + response.oldest_s) / 2 - shift_s
    edges = np.searchsorted(readings.times_s, spans.blocks_s + middle_s)
    for begin in range(edges[0], edges[-1], _ROWS):
        piece = np.arange(begin, min(begin + _ROWS, edges[-1]))
        times_s = readings.times_s[piece] + shift_s
        first_s = times_s[0] - response.oldest_s - small_s
        near = spans.during(first_s, times_s[-1] - response.youngest_s + small_s)
        own = response.of(piece)
        weights, covered = _weights(times_s, own, near)
        later, _ = _weights(times_s + small_s, own, near)
        earlier, _ = _weights(times_s - small_s, own, near)
        counts = readings.sound[piece] & (covered >= 1 - _UNCOVERED)
        table = np.hstack([weights, (later - earlier) / (2 * small_s)])
        ends = np.clip(edges - begin, 0, len(piece))
        for block in np.flatnonzero(np.diff(ends)):
            part = slice(ends[block], ends[block + 1])
            kept, power_w = table[part][counts[part]], readings.power_w[piece[part]][counts[part]]
            columns[block] += kept.T @ kept
            powers[block] += kept.T @ power_w
            squares[block] += power_w @ power_w
            rows[block] += len(power_w)
    return Products(columns, powers, squares, rows)


def _weights(
    times_s: NDArray[np.float64], response: Response, spans: Spans
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[readings, activities] weights, and [readings] the weight on spans that run alone."""
    first = np.searchsorted(times_s, spans.start_s + response.youngest_s, side="right")
    last = np.searchsorted(times_s, spans.end_s + response.oldest_s, side="left")
    counts = np.maximum(last - first, 0)
    span = np.repeat(np.arange(len(counts)), counts)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    row = first[span] + np.arange(len(span)) - before
    own = response.of(row)
    parts = own.reached(times_s[row] - spans.start_s[span])
    parts -= own.reached(times_s[row] - spans.end_s[span])
    rows, count = len(times_s), len(spans.activities)
    place = row * count + spans.activity[span]
    weights = _sums(place, parts, rows * count).reshape(rows, count)
    alone = ~spans.beside[span]
    return weights, _sums(row[alone], parts[alone], rows)


def _sums(places: NDArray[np.intp], parts: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """[count] sums of the parts of each place."""
    return np.asarray(np.bincount(places, parts, minlength=count), dtype=np.float64)

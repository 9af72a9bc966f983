"""Views: tensors of a program that are elements of one stored tensor, in any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from networks.training.network import Value


@dataclass(frozen=True)
class View:
    """Elements of ``value``: ``shape``, and ``strides`` and ``offset`` in elements."""

    value: Value
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def whole(cls, value: Value) -> View:
        """The tensor in its own order."""
        return cls(value, value.shape, _row_major(value.shape))

    @property
    def is_row_major(self) -> bool:
        """Whether the elements are all of the stored tensor, in its order."""
        wanted = _row_major(self.shape)
        return self.has_all and all(
            size == 1 or stride == want
            for size, stride, want in zip(self.shape, self.strides, wanted, strict=True)
        )

    @property
    def has_all(self) -> bool:
        """Whether every element of the stored tensor is there exactly once."""
        if self.offset or math.prod(self.shape) != self.value.elements:
            return False
        reach = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size > 1 and stride != reach:
                return False
            reach *= size
        return True

    @property
    def stored_axes(self) -> list[int]:
        """Axes of more than one element, in the order in which they are stored."""
        axes = [axis for axis, size in enumerate(self.shape) if size > 1]
        return sorted(axes, key=lambda axis: -self.strides[axis])

    def of_axes(self, axes: Sequence[int]) -> View:
        """The elements along these axes, in this order, at the first places of all others."""
        return replace(
            self,
            shape=tuple(self.shape[axis] for axis in axes),
            strides=tuple(self.strides[axis] for axis in axes),
        )

    def reshaped(self, shape: tuple[int, ...]) -> View | None:
        """The same elements in another shape; None if that needs a copy."""
        if math.prod(shape) != math.prod(self.shape):
            return None
        # NumPy decides; no element is touched.
        like = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), self.shape, self.strides)
        try:
            view = np.reshape(like, shape, copy=False)
        except ValueError:
            return None
        return replace(self, shape=shape, strides=view.strides)

    def permuted(self, order: tuple[int, ...]) -> View:
        """The same elements with their axes in another order."""
        return self.of_axes(order)

    def in_stored_order(self, last: int) -> tuple[View, tuple[int, ...]]:
        """The same elements in the order in which they are stored, and the order that undoes it.

        The ``last`` axes stay last. If the elements are not all of a stored tensor, or these axes
        not the last ones there, the order stays as it is.
        """
        count = len(self.shape)
        kept = tuple(range(count))
        order = (*sorted(kept[: count - last], key=lambda axis: -self.strides[axis]),)
        stored = self.permuted((*order, *kept[count - last :]))
        if self.is_row_major or not stored.is_row_major:
            return self, kept
        return stored, (*map(order.index, range(len(order))), *kept[count - last :])

    def part(self, axis: int, start: int, size: int, step: int = 1) -> View:
        """Every ``step``-th of the elements along an axis."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[axis]
        shape[axis], strides[axis] = size, strides[axis] * step
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=offset)

    def with_axes(self, axis: int, count: int) -> View:
        """The same elements with ``count`` axes: new ones of size 1 stand at ``axis``."""
        new = (1,) * (count - len(self.shape))
        return replace(
            self,
            shape=(*self.shape[:axis], *new, *self.shape[axis:]),
            strides=(*self.strides[:axis], *(0 for _ in new), *self.strides[axis:]),
        )

    def without(self, axis: int) -> View:
        """The same elements without an axis of size 1."""
        assert self.shape[axis] == 1, f"axis {axis} of {self.shape} has several elements"
        return replace(
            self,
            shape=self.shape[:axis] + self.shape[axis + 1 :],
            strides=self.strides[:axis] + self.strides[axis + 1 :],
        )

    def within(self, axis: int) -> View:
        """The same elements with another axis of size 1."""
        return replace(
            self,
            shape=(*self.shape[:axis], 1, *self.shape[axis:]),
            strides=(*self.strides[:axis], 0, *self.strides[axis:]),
        )

    def expanded(self, shape: tuple[int, ...]) -> View:
        """The same elements, repeated along new axes and axes of size 1."""
        new = len(shape) - len(self.shape)
        strides = tuple(
            0 if before == 1 and after > 1 else stride
            for before, after, stride in zip(self.shape, shape[new:], self.strides, strict=True)
        )
        return replace(self, shape=shape, strides=(0,) * new + strides)

    def without_repetitions(self, axes: int) -> View:
        """One of the elements that repeat along any of the first ``axes`` axes."""
        view = self
        for axis in range(axes):
            if self.strides[axis] == 0:
                view = view.part(axis, 0, 1)
        return view

    def of(self, value: Value) -> View:
        """The same view of another tensor with as many elements."""
        return replace(self, value=value)


@dataclass(frozen=True)
class Merged:
    """A tensor whose axes are several of a view's, although they are not stored in that order.

    ``counts`` states how many of the view's axes each axis is. The tensor itself is a copy, which
    nothing reads if an operation takes the axes apart again.
    """

    view: View
    counts: tuple[int, ...]

    @classmethod
    def of(cls, view: View, shape: tuple[int, ...]) -> Merged | None:
        """The elements of a view in another shape; None if an axis of either has a remainder."""
        sizes: list[int] = []
        counts = []
        left = [size for size in reversed(view.shape) if size > 1]
        for wanted in shape:
            before, needed = len(sizes), wanted
            while needed > 1:
                size = left.pop() if left else 0
                taken = min(size, needed)
                if taken == 0 or size % taken or needed % taken:
                    return None
                if size > taken:
                    left.append(size // taken)
                sizes.append(taken)
                needed //= taken
            counts.append(len(sizes) - before)
        finer = view.reshaped(tuple(sizes))
        return None if finer is None else cls(finer, tuple(counts))

    def permuted(self, order: tuple[int, ...]) -> Merged:
        """The same elements with the axes of the tensor in another order."""
        starts = [sum(self.counts[:axis]) for axis in order]
        counts = [self.counts[axis] for axis in order]
        axes = [
            start + each
            for start, count in zip(starts, counts, strict=True)
            for each in range(count)
        ]
        return Merged(self.view.permuted(tuple(axes)), tuple(counts))


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))

"""Views: tensors of a program that are elements of one stored tensor in another order."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from networks.training.network import Value


@dataclass(frozen=True)
class View:
    """All elements of ``value``, once each, with ``shape`` and ``strides`` in elements."""

    value: Value
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def whole(cls, value: Value) -> View:
        """The tensor in its own order."""
        return cls(value, value.shape, _row_major(value.shape))

    @property
    def is_row_major(self) -> bool:
        """Whether the elements are in the order of the stored tensor."""
        wanted = _row_major(self.shape)
        return all(
            size == 1 or stride == want
            for size, stride, want in zip(self.shape, self.strides, wanted, strict=True)
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
        return View(self.value, shape, view.strides)

    def permuted(self, order: tuple[int, ...]) -> View:
        """The same elements with their axes in another order."""
        return View(
            self.value,
            tuple(self.shape[axis] for axis in order),
            tuple(self.strides[axis] for axis in order),
        )

    def of(self, value: Value) -> View:
        """The same view of another tensor with as many elements."""
        return View(value, self.shape, self.strides)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))

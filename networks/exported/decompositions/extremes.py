"""Maxima and minima along axes, which are maxima of windows.

Of equal maxima, the first one has the gradient. PyTorch's ``amax`` divides it among them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from networks.exported.decompositions.parts import Decomposition, Parts, Shape
from networks.exported.program import Reference

_LARGEST = float(np.finfo(np.float32).max)


def largest(p: Parts, x: Reference, axes: Shape, *, keep: bool) -> Reference:
    """Append the maxima along axes."""
    shape = p.shape(x)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    count = math.prod(shape[axis] for axis in axes)
    rows = math.prod(shape[axis] for axis in kept)
    turned = p.permuted(x, (*kept, *axes))
    image, window = p.reshaped(turned, (1, rows, 1, count)), (1, count)
    found = p.add(
        *("max_pool2d.default", (1, rows, 1, 1)), self=image, kernel_size=window, stride=window
    )
    left = (1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis in kept)
    return p.reshaped(found, tuple(left))


def _log_of_sum(p: Parts) -> None:
    """m + log(sum(exp(x - m))), where no gradient flows through the maximum m."""
    x, keep = p.operand(), bool(p.number("keepdim", 0))
    axes = p.axes("dim", x)
    most = p.of("detach", largest(p, x, axes, keep=True))
    total = p.of("log", p.total(p.of("exp", p.pair("sub", x, most)), axes, keep=keep))
    p.end(p.pair("add", total, p.reshaped(most, p.shape(total))))


def _extremes(sign: float) -> Decomposition:
    """Maxima with sign 1, minima with -1; along one axis, also the first places of them."""

    def appended(p: Parts) -> None:
        x, keep = p.scaled(p.operand(), sign), bool(p.number("keepdim", 0))
        axes = p.axes("dim", x)
        if len(p.node.outputs) > 1 and p.is_read(1):
            p.end(_first_place(p, x, axes[0], keep=keep), output=1)
        p.end(p.scaled(largest(p, x, axes, keep=keep), sign))

    return appended


def _both_extremes(p: Parts) -> None:
    x, keep = p.operand(), bool(p.number("keepdim", 0))
    axes = p.axes("dim", x)
    lowest = largest(p, p.scaled(x, -1.0), axes, keep=keep)
    p.end(p.scaled(lowest, -1.0))
    p.end(largest(p, x, axes, keep=keep), output=1)


def _pool(p: Parts) -> None:
    """Maxima of windows whose places nothing reads."""
    if not p.is_read(1):
        p.end(p.add("max_pool2d.default", p.result, **p.node.arguments))


def _place(sign: float) -> Decomposition:
    """Place of the first maximum with sign 1, minimum with -1, along an axis or among all."""

    def appended(p: Parts) -> None:
        x = p.scaled(p.operand(), sign)
        if not p.has_number("dim"):
            x = p.reshaped(x, (math.prod(p.shape(x)),))
        p.end(_first_place(p, x, p.axis("dim", x, 0), keep=bool(p.number("keepdim", 0))))

    return appended


def _first_place(p: Parts, x: Reference, axis: int, *, keep: bool) -> Reference:
    """Each maximum has its distance from the end, n - i; the first place is n less the largest.

    Infinities are made finite, as a comparison subtracts.
    """
    size, x = p.shape(x)[axis], p.of("clamp", x, min=-_LARGEST, max=_LARGEST)
    most = p.pair("eq", x, largest(p, x, (axis,), keep=True))
    across = (size, *(1 for _ in p.shape(x)[axis + 1 :]))
    falling = p.constant((size - p.places(size)).astype("f4").reshape(across))
    found = largest(p, p.pair("mul", most, falling), (axis,), keep=keep)
    return p.raised(p.scaled(found, -1.0), float(size))


def _adaptive_pool(axes: int) -> Decomposition:
    """Maxima of equal parts of the last axes, whose places nothing reads."""

    def appended(p: Parts) -> None:
        x = p.operand()
        outer, before = p.shape(x)[:-axes], p.shape(x)[-axes:]
        wanted = p.sizes("output_size", axes)
        pairs = list(zip(before, wanted, strict=True))
        if any(size % parts for size, parts in pairs) or (len(p.node.outputs) > 1 and p.is_read(1)):
            return
        ones = (1,) * (2 - axes)  # one axis is that of images of height 1
        window = (*ones, *(size // parts for size, parts in pairs))
        leading = (1, math.prod(outer), *ones)
        image = p.reshaped(x, (*leading, *before))
        found = p.add(
            *("max_pool2d.default", (*leading, *wanted)),
            self=image,
            kernel_size=window,
            stride=window,
        )
        p.end(p.reshaped(found, (*outer, *wanted)))

    return appended


EXTREMES: Mapping[str, Decomposition] = {
    "logsumexp.default": _log_of_sum,
    **dict.fromkeys(("amax.default", "max.dim", "max.default"), _extremes(1.0)),
    **dict.fromkeys(("amin.default", "min.dim", "min.default"), _extremes(-1.0)),
    "aminmax.default": _both_extremes,
    "max_pool2d_with_indices.default": _pool,
    "argmax.default": _place(1.0),
    "argmin.default": _place(-1.0),
    "adaptive_max_pool1d.default": _adaptive_pool(1),
    "adaptive_max_pool2d.default": _adaptive_pool(2),
}
"""By ATen's name without ``aten.``."""

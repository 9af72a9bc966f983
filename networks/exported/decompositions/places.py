"""Elements in other places: flips, repetitions, windows, triangles, and padding with elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from networks.exported.decompositions.parts import Decomposition, Incomplete, Parts
from networks.exported.program import Reference


def _flipped(p: Parts) -> None:
    x = p.operand()
    for axis in p.axes("dims", x):
        x = p.taken(x, axis, p.places(p.shape(x)[axis])[::-1])
    p.end(x)


def _repeated_each(p: Parts) -> None:
    """Every element along an axis several times, one after the other."""
    x, times = p.operand(), int(p.number("repeats", 0))
    if not p.has_number("dim"):
        x = p.reshaped(x, (math.prod(p.shape(x)),))
    axis = p.axis("dim", x, 0)
    if times > 0:
        p.end(p.taken(x, axis, p.places(p.shape(x)[axis] * times) // times))


def _tiled(p: Parts) -> None:
    x, stated = p.operand(), p.node.arguments.get("dims")
    times = stated if isinstance(stated, tuple) else ()
    repeats = (1,) * (len(p.shape(x)) - len(times)) + times
    p.end(p.add("repeat.default", p.result, self=x, repeats=repeats))


def _windows(p: Parts) -> None:
    """Every window of an axis, whose elements are along a new last axis."""
    x = p.operand()
    axis, shape = p.axis("dimension", x, 0), p.shape(x)
    size, step = int(p.number("size", 1)), int(p.number("step", 1))
    count = (shape[axis] - size) // step + 1
    number = p.places(count * size)
    taken = p.taken(x, axis, number // size * step + number % size)
    apart = p.reshaped(taken, (*shape[:axis], count, size, *shape[axis + 1 :]))
    order = (*(each for each in range(len(shape) + 1) if each != axis + 1), axis + 1)
    p.end(p.permuted(apart, order))


def _moved(p: Parts) -> None:
    x = p.operand()
    source, target = p.axes("source", x), p.axes("destination", x)
    if len(set(source)) != len(set(target)):
        return
    order: list[int | None] = [None] * len(p.shape(x))
    for before, after in zip(source, target, strict=True):
        order[after] = before
    rest = (axis for axis in range(len(order)) if axis not in source)
    p.end(p.permuted(x, tuple(next(rest) if axis is None else axis for axis in order)))


def _triangle(kept: Callable[..., NDArray[np.bool_]]) -> Decomposition:
    def appended(p: Parts) -> None:
        x = p.operand()
        rows, columns = p.shape(x)[-2:]
        every = p.places(rows * columns).reshape(rows, columns) >= 0
        hidden = p.constant(~kept(every, int(p.number("diagonal", 0))))
        p.end(p.add("masked_fill.Scalar", p.shape(x), self=x, mask=hidden, value=0.0))

    return appended


def _diagonal(p: Parts) -> None:
    x = p.operand()
    first, second = p.axis("dim1", x, 0), p.axis("dim2", x, 1)
    rows, columns = p.shape(x)[first], p.shape(x)[second]
    offset = int(p.number("offset", 0))
    row = max(0, -offset) + p.places(min(rows, columns - offset) - max(0, -offset))
    rest = [axis for axis in range(len(p.shape(x))) if axis not in {first, second}]
    turned = p.permuted(x, (*rest, first, second))
    flat = p.reshaped(turned, (*(p.shape(x)[axis] for axis in rest), rows * columns))
    p.end(p.taken(flat, len(rest), row * columns + row + offset))


PADDING: Mapping[str, Callable[[NDArray[np.int64], tuple[int, int]], NDArray[np.int64]]] = {
    "reflect": lambda places, sides: np.pad(places, sides, mode="reflect"),
    "replicate": lambda places, sides: np.pad(places, sides, mode="edge"),
    "circular": lambda places, sides: np.pad(places, sides, mode="wrap"),
}
"""Places along an axis, with those of the elements at its sides, by PyTorch's names of modes."""


def _padded(mode: str) -> Decomposition:
    def appended(p: Parts) -> None:
        p.end(padded_with_elements(p, mode, "padding"))

    return appended


def padded_with_elements(p: Parts, mode: str, argument: str) -> Reference:
    """Append elements of a tensor at its sides, as ``reflect``, ``replicate`` or ``circular``."""
    x, stated = p.operand(), p.node.arguments.get(argument)
    sides = [each for each in stated if isinstance(each, int)] if isinstance(stated, tuple) else []
    for number in range(0, len(sides), 2):
        axis = len(p.shape(x)) - 1 - number // 2
        before, after = sides[number : number + 2]
        if before or after:
            p.places(p.shape(x)[axis] + before + after)  # refuses too many
            x = p.taken(x, axis, PADDING[mode](p.places(p.shape(x)[axis]), (before, after)))
    return x


def _nearest(p: Parts) -> None:
    """Element i is the one at floor(i / factor); whole factors are one operation.

    A factor that is not stated is after / before.
    """
    x, wanted = p.operand("input" if "input" in p.node.arguments else "self"), p.result
    shape, stated = p.shape(x), p.node.arguments.get("scale_factors")
    pairs = list(zip(shape[2:], wanted[2:], strict=True))
    by_size = [np.float32(before) / np.float32(after) for before, after in pairs]
    factors = stated if isinstance(stated, tuple) else ()
    steps = [np.float32(1 / each) for each in factors if isinstance(each, int | float)] or by_size
    if len(shape) == 4 and all(after % before == 0 for before, after in pairs) and steps == by_size:
        return
    for axis, ((before, after), step) in enumerate(zip(pairs, steps, strict=True), start=2):
        if after == 2 * before and step != np.float32(0.5):
            raise Incomplete  # PyTorch's gradient is that of 2, and so is its result of some sizes
        places = np.minimum(np.floor(p.places(after).astype("f4") * step), before - 1)
        x = p.taken(x, axis, places.astype(np.int64))
    p.end(x)


def _linear(p: Parts) -> None:
    """Interpolation along one axis: that of images of height 1."""
    x = p.operand("input" if "input" in p.node.arguments else "self")
    (batch, channels, length), after = p.shape(x), p.result[2]
    image = p.reshaped(x, (batch, channels, 1, length))
    corners, factors = bool(p.number("align_corners", 0)), p.node.arguments.get("scale_factors")
    found = p.add(
        *("upsample_bilinear2d.vec", (batch, channels, 1, after)),
        input=image,
        output_size=(1, after),
        align_corners=corners,
        scale_factors=(1.0, *factors) if isinstance(factors, tuple) else None,
    )
    p.end(p.reshaped(found, p.result))


def _entries(p: Parts) -> None:
    """Entries at computed places along axes that are side by side; negative ones count back."""
    x, stated = p.operand(), p.node.arguments.get("indices")
    given = {
        axis: each
        for axis, each in enumerate(stated if isinstance(stated, tuple) else ())
        if isinstance(each, Reference)
    }
    first, shape = min(given, default=0), p.shape(x)
    is_computed = any(p.varies(each) and p.is_whole(each) for each in given.values())
    if not is_computed or list(given) != list(range(first, first + len(given))):
        return
    after, total = first + len(given), None
    for axis, each in given.items():
        places = p.pair("add", each, p.scaled(p.compared("lt", each, 0.0), shape[axis]))
        strided = p.scaled(places, math.prod(shape[axis + 1 : after]))
        total = strided if total is None else p.pair("add", total, strided)
    assert total is not None, "at least one place is computed"
    count = math.prod(p.shape(total))
    rows = p.reshaped(x, (*shape[:first], math.prod(shape[first:after]), *shape[after:]))
    taken = p.add(
        *("index_select.default", (*shape[:first], count, *shape[after:])),
        self=rows,
        dim=first,
        index=p.reshaped(total, (count,)),
    )
    p.end(p.reshaped(taken, p.result))


PLACES: Mapping[str, Decomposition] = {
    "flip.default": _flipped,
    "repeat_interleave.self_int": _repeated_each,
    "tile.default": _tiled,
    "unfold.default": _windows,
    **dict.fromkeys(("movedim.int", "movedim.intlist", "moveaxis.int"), _moved),
    "tril.default": _triangle(np.tril),
    "triu.default": _triangle(np.triu),
    "diagonal.default": _diagonal,
    "index.Tensor": _entries,
    **{
        f"{name}_pad{n}d.default": _padded(mode)
        for n in (1, 2)
        for name, mode in (("reflection", "reflect"), ("replication", "replicate"))
    },
    **dict.fromkeys(("upsample_nearest1d.vec", "upsample_nearest2d.vec"), _nearest),
    "upsample_linear1d.vec": _linear,
}
"""By ATen's name without ``aten.``."""

"""Views, parts, joins and padding."""

from __future__ import annotations

from collections.abc import Mapping

from networks.exported.construction import Unsupported
from networks.exported.program import Argument
from networks.onnx.operation import OnnxOperation, Translation, checked_axes


def _reshape(op: OnnxOperation) -> None:
    """The same elements in the shape of the result."""
    op.become("reshape.default", self=op.tensor(), shape=op.result)


def _transpose(op: OnnxOperation) -> None:
    order = op.integers("perm", tuple(reversed(range(len(op.shape())))))
    op.become("permute.default", self=op.tensor(), dims=order)


def _concat(op: OnnxOperation) -> None:
    parts = tuple(op.tensor(position) for position in range(len(op.inputs)))
    op.become("cat.default", tensors=parts, dim=op.axis(len(op.result), 0))


def _split(op: OnnxOperation) -> None:
    shapes = {name: op.program.shape(name) for name in op.outputs}
    if "" in shapes:
        raise Unsupported("one of its parts has no name")
    axis = op.axis(len(op.shape()), 0)
    sizes = tuple(shape[axis] for shape in shapes.values())
    if sum(sizes) != op.shape()[axis]:
        raise Unsupported(f"it splits {op.shape()} into {sizes} along axis {axis}")
    arguments: dict[str, Argument] = {"self": op.tensor(), "split_sizes": sizes, "dim": axis}
    op.program.append(op, "split_with_sizes.default", arguments, shapes)


def _slice(op: OnnxOperation) -> None:
    shape = list(op.shape())
    starts, ends = op.setting("starts", 1), op.setting("ends", 2)
    axes, steps = op.setting("axes", 3), op.setting("steps", 4)
    if starts is None or ends is None or len(starts) != len(ends):
        raise Unsupported("its starts and ends are not given alike")
    chosen = checked_axes(tuple(axes or range(len(starts))), len(shape))
    paces = steps or (1,) * len(starts)
    if not len(chosen) == len(starts) == len(paces) or len(set(chosen)) < len(chosen):
        raise Unsupported(f"its axes are {chosen}, its steps {paces}")
    x = op.tensor()
    for axis, start, end, pace in zip(chosen, starts, ends, paces, strict=True):
        if pace < 1:
            raise Unsupported(f"its step is {pace}; it must be positive")
        first, last, pace = slice(start, end, pace).indices(shape[axis])
        shape[axis] = len(range(first, last, pace))
        if shape[axis] == 0:
            raise Unsupported("its result is empty")
        where = {"dim": axis, "start": first, "end": last, "step": pace}
        x = op.step(f"part{axis}", "slice.Tensor", tuple(shape), self=x, **where)
    op.become("alias.default", self=x)


def _expand(op: OnnxOperation) -> None:
    op.become("expand.default", self=op.tensor(), size=op.result)


def _tile(op: OnnxOperation) -> None:
    op.become("repeat.default", self=op.tensor(), repeats=tuple(op.known(1).tolist()))


def _pad(op: OnnxOperation) -> None:
    if op.text("mode", "constant") != "constant":
        raise Unsupported(f"it pads by {op.text('mode', '')}", "zeros")
    value = op.setting("value", 2) or (0.0,)
    sides, count = op.setting("pads", 1) or (), len(op.shape())
    axes = checked_axes(tuple(op.setting("axes", 3) or range(count)), count)
    if len(sides) != 2 * len(axes) or len(set(axes)) < len(axes):
        raise Unsupported(f"its pads are {sides} for the axes {axes}")
    around = {axis: sides[number :: len(axes)] for number, axis in enumerate(axes)}
    first = min((axis for axis in axes if any(around[axis])), default=count - 1)
    pads = (around.get(axis, (0, 0)) for axis in reversed(range(first, count)))
    pad = tuple(int(side) for pair in pads for side in pair)
    op.become("pad.default", self=op.tensor(), pad=pad, mode="constant", value=float(value[0]))


SHAPES: Mapping[str, Translation] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
}

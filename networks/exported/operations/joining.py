"""Concatenation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import Node
from networks.exported.views import View
from networks.training.network import Value


def _concat(c: Construction, node: Node) -> None:
    views = c.views_of(node, "tensors")
    if not views:
        raise Unsupported("it joins nothing")
    _bind_joined(c, node, views, c.axis(node, views[0]))


def _stack(c: Construction, node: Node) -> None:
    views = c.views_of(node, "tensors")
    if not views:
        raise Unsupported("it joins nothing")
    axis = c.axes(node, "dim", len(views[0].shape) + 1, (0,))[0]
    _bind_joined(c, node, [view.with_axes(axis, len(view.shape) + 1) for view in views], axis)


def _bind_joined(c: Construction, node: Node, views: Sequence[View], axis: int) -> None:
    parts = [c.stored(node, view) for view in views]
    joined = parts[0]
    names: tuple[str, ...] = (joined.name,)
    for number, part in enumerate(parts[1:], start=1):
        names = (*names, part.name)
        # A network that joins ever more tensors (DenseNet) has joined the first ones before.
        before = c.joined.get((axis, names))
        if before is None:
            before = _joined(c, node, joined, part, axis, "" if len(parts) == 2 else str(number))
            c.joined[axis, names] = before
        joined = before
    c.bind(node, View.whole(joined))


def _joined(c: Construction, node: Node, left: Value, right: Value, axis: int, name: str) -> Value:
    shape = (*left.shape[:axis], left.shape[axis] + right.shape[axis], *left.shape[axis + 1 :])
    spec = OpSpec.of(
        "concat.forward",
        outer=math.prod(left.shape[:axis]),
        left_inner=math.prod(left.shape[axis:]),
        right_inner=math.prod(right.shape[axis:]),
    )
    return c.layer(node, spec, (left, right), shape=shape, part=name)


JOINING: Mapping[str, Operation] = {
    "cat.default": _concat,
    "stack.default": _stack,
}

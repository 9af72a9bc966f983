"""Concatenation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import Node
from networks.exported.views import View
from networks.training.network import Value


def _concat(c: Construction, node: Node) -> None:
    # An empty tensor of any shape may stand among the others, as caches of keys begin with one.
    views = [view for view in c.views_of(node, "tensors") if 0 not in view.shape]
    if not views:
        raise Unsupported("it joins nothing")
    axis = c.axis(node, views[0])
    if len(views) == 1:
        c.bind(node, views[0])
        return
    c.bind(node, View.whole(join(c, node, [c.stored(node, view) for view in views], axis)))


def _stack(c: Construction, node: Node) -> None:
    views = c.views_of(node, "tensors")
    (axis,) = c.axes(node, "dim", len(c.meta(node).shape), (0,))
    if not views or any(len(view.shape) < axis for view in views):
        raise Unsupported("it joins nothing")
    parts = [c.stored(node, view.within(axis)) for view in views]
    c.bind(node, View.whole(join(c, node, parts, axis)))


def join(c: Construction, node: Node, parts: list[Value], axis: int, part: str = "") -> Value:
    """Append the concatenation of tensors; ``part`` names it if the node has other layers."""
    joined = parts[0]
    names: tuple[str, ...] = (joined.name,)
    for number, each in enumerate(parts[1:], start=1):
        names = (*names, each.name)
        # A network that joins ever more tensors (DenseNet) has joined the first ones before.
        before = c.joined.get((axis, names))
        if before is None:
            name = part + ("" if len(parts) == 2 else str(number))
            before = _joined(c, node, joined, each, axis, name)
            c.joined[axis, names] = before
        joined = before
    return joined


def _joined(c: Construction, node: Node, left: Value, right: Value, axis: int, name: str) -> Value:
    before, after = slice(axis), slice(axis + 1, None)
    if left.shape[before] != right.shape[before] or left.shape[after] != right.shape[after]:
        raise Unsupported(f"shapes {left.shape} and {right.shape} do not join along axis {axis}")
    shape = (*left.shape[before], left.shape[axis] + right.shape[axis], *left.shape[after])
    spec = OpSpec.of(
        "concat.forward",
        outer=math.prod(left.shape[:axis]),
        left_inner=math.prod(left.shape[axis:]),
        right_inner=math.prod(right.shape[axis:]),
    )
    # Nodes outside torch.no_grad may read it, too; what reads it inside stops gradients.
    node = replace(node, without_gradient=False)
    return c.layer(node, spec, (left, right), shape=shape, part=name)


JOINING: Mapping[str, Operation] = {
    "cat.default": _concat,
    "stack.default": _stack,
}

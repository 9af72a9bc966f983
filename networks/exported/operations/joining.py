"""Concatenation and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import Node
from networks.exported.views import View
from networks.training.network import Value


def _concat(c: Construction, node: Node) -> None:
    views = c.views_of(node, "tensors")
    if not views:
        raise Unsupported("it joins nothing")
    axis = c.axis(node, views[0])
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
    shape = (*left.shape[:axis], left.shape[axis] + right.shape[axis], *left.shape[axis + 1 :])
    spec = OpSpec.of(
        "concat.forward",
        outer=math.prod(left.shape[:axis]),
        left_inner=math.prod(left.shape[axis:]),
        right_inner=math.prod(right.shape[axis:]),
    )
    return c.layer(node, spec, (left, right), shape=shape, part=name)


def _attention(c: Construction, node: Node) -> None:
    c.require(node, is_causal=False, enable_gqa=False)
    if c.has(node, "attn_mask"):
        raise Unsupported("it has a mask", "sequences of full length without a mask")
    query, key, value = (_heads_in_rows(c, node, name) for name in ("query", "key", "value"))
    batch, sequence, heads, features = query.shape
    if key.shape != query.shape or value.shape != query.shape:
        raise Unsupported(
            f"query, key and value have shapes {query.shape}, {key.shape}, {value.shape}"
        )
    scale = c.plain(node, "scale", 1 / math.sqrt(features))
    if not math.isclose(scale, 1 / math.sqrt(features), rel_tol=1e-6):
        raise Unsupported(f"scale is {scale}; only 1 / sqrt(features) is supported")
    sizes = {"batch": batch, "sequence": sequence, "heads": heads, "head_features": features}
    square = (batch, heads, sequence, sequence)
    spec = OpSpec.of("attention_scores.forward", **sizes)
    scores = c.layer(node, spec, (query, key), part="scores")
    spec = OpSpec.of("softmax.forward", rows=batch * heads * sequence, columns=sequence)
    weights = c.layer(node, spec, (scores,), shape=square, part="softmax")
    probability = c.plain(node, "dropout_p", 0.0)
    if probability:
        c.dropouts += 1
        spec = OpSpec.of("dropout.forward", elements=math.prod(square))
        scalars = {"probability": probability, "seed": float(c.dropouts)}
        weights = c.layer(node, spec, (weights,), shape=square, scalars=scalars, part="dropout")
    spec = OpSpec.of("attention_context.forward", **sizes)
    context = c.layer(node, spec, (weights, value), shape=query.shape, part="context")
    c.bind_copy(node, View.whole(context).permuted((0, 2, 1, 3)))


def _heads_in_rows(c: Construction, node: Node, name: str) -> Value:
    """The tensor [batch, heads, sequence, features] as rows of all heads, side by side."""
    view = c.view(node, name)
    if len(view.shape) != 4:
        raise Unsupported(f"{name} has shape {view.shape}; 4 axes are needed")
    return c.stored(node, view.permuted((0, 2, 1, 3)))


def _softmax(c: Construction, node: Node) -> None:
    x = c.value(node, "self")
    if c.axes(node, "dim", len(x.shape), (-1,)) != (len(x.shape) - 1,):
        raise Unsupported("it is not over the last axis")
    *rows, columns = x.shape
    spec = OpSpec.of("softmax.forward", rows=math.prod(rows), columns=columns)
    output = c.layer(node, spec, (x,), shape=x.shape)
    c.bind(node, View.whole(output))


JOINING: Mapping[str, Operation] = {
    "cat.default": _concat,
    "stack.default": _stack,
    "scaled_dot_product_attention.default": _attention,
    "softmax.int": _softmax,
}

"""Operations element by element."""

from __future__ import annotations

import math
from collections.abc import Mapping

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import INT64, Node
from networks.exported.views import View
from networks.training.network import Value


def _activation(family: str) -> Operation:
    def mapped(c: Construction, node: Node) -> None:
        c.require(node, approximate="none")
        view = _all_of(c, node)
        _elementwise(c, node, f"{family}.forward", view, view.value)

    return mapped


def _clamp(lowest: float, highest: float) -> Operation:
    """Hardtanh; the bounds are those of its default arguments."""

    def mapped(c: Construction, node: Node) -> None:
        view = _all_of(c, node)
        bounds = {
            "lowest": c.plain(node, "min_val", lowest),
            "highest": c.plain(node, "max_val", highest),
        }
        _elementwise(c, node, "clamp.forward", view, view.value, scalars=bounds)

    return mapped


def _leaky_relu(c: Construction, node: Node) -> None:
    view = _all_of(c, node)
    slope = c.plain(node, "negative_slope", 0.01)
    if slope < 0:
        raise Unsupported(f"its slope is {slope}; it must not be negative")
    _elementwise(c, node, "leaky_relu.forward", view, view.value, scalars={"slope": slope})


def _all_of(c: Construction, node: Node) -> View:
    """The first operand in any order; a copy of it if it is a part of a tensor."""
    view = c.subject(node)
    return view if view.has_all else View.whole(c.stored(node, view))


def _elementwise(
    c: Construction,
    node: Node,
    kind: str,
    view: View,
    *reads: Value,
    scalars: Mapping[str, float] | None = None,
) -> None:
    """Append an operation on the elements in the order in which they are stored.

    ``view`` has all of them.
    """
    stored = view.value.shape
    elements = math.prod(stored)
    spec = OpSpec.of(kind, elements=elements)
    output = c.layer(node, spec, reads, shape=stored, scalars=scalars)
    c.bind(node, view.of(output))


def _add(c: Construction, node: Node) -> None:
    c.require(node, alpha=1)
    if _counts_steps(c, node):
        return
    _pairwise(c, node, "add.forward")


def _multiply(c: Construction, node: Node) -> None:
    if not c.has(node, "other"):
        raise Unsupported(f"it multiplies by the number {node.arguments.get('other')}")
    x, scale = c.view(node, "self"), c.view(node, "other")
    if math.prod(scale.shape) > math.prod(x.shape):
        x, scale = scale, x
    batch, channels, *plane = x.shape if len(x.shape) > 2 else (0, 0)
    if x.shape == scale.shape or scale.shape != (batch, channels, *(1 for _ in plane)):
        _pairwise(c, node, "multiply.forward")
        return
    reads = c.stored(node, x), c.stored(node, scale)
    spec = OpSpec.of(
        "channel_scale.forward", batch=batch, channels=channels, plane=math.prod(plane)
    )
    c.bind(node, View.whole(c.layer(node, spec, reads, shape=x.shape)))


def _pairwise(c: Construction, node: Node, kind: str) -> None:
    """Append an operation on two tensors, which are repeated where their shapes differ."""
    shape = c.meta(node).shape
    if not c.has(node, "other"):
        raise Unsupported(f"its other operand is the number {node.arguments.get('other')}")
    left, right = (c.view(node, name).expanded(shape) for name in ("self", "other"))
    if left.strides != right.strides or not (left.has_all and right.has_all):
        left, right = (View.whole(c.stored(node, view)) for view in (left, right))
    _elementwise(c, node, kind, left, left.value, right.value)


def _counts_steps(c: Construction, node: Node) -> bool:
    """Take a batch norm's counter of steps out of the network: nothing reads it."""
    if c.meta(node).dtype != INT64:
        return False
    counter = c.view(node, "self").value
    if counter.kind != "parameter" or counter.shape != () or node.arguments.get("other") != 1:
        raise Unsupported("arithmetic on whole numbers")
    c.counters.append(counter.name)
    c.views[node.outputs[0]] = c.view(node, "self")
    return True


def _dropout(c: Construction, node: Node) -> None:
    view = _all_of(c, node)
    probability = c.plain(node, "p", 0.5)
    if not c.plain(node, "train", False) or probability == 0:
        c.bind_copy(node, view)
        return
    c.dropouts += 1
    scalars = {"probability": probability, "seed": float(c.dropouts)}
    _elementwise(c, node, "dropout.forward", view, view.value, scalars=scalars)


ELEMENTWISE: Mapping[str, Operation] = {
    "relu.default": _activation("relu"),
    "gelu.default": _activation("gelu"),
    "tanh.default": _activation("tanh"),
    "sigmoid.default": _activation("sigmoid"),
    "silu.default": _activation("silu"),
    "hardsigmoid.default": _activation("hard_sigmoid"),
    "hardswish.default": _activation("hard_swish"),
    "hardtanh.default": _clamp(-1.0, 1.0),
    "relu6.default": _clamp(0.0, 6.0),
    "leaky_relu.default": _leaky_relu,
    "add.Tensor": _add,
    "mul.Tensor": _multiply,
    "dropout.default": _dropout,
}

"""Functions of one tensor, element by element."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import Node
from networks.exported.views import View
from networks.training.network import Value


def _function(family: str) -> Operation:
    """The operation that applies a function of one tensor."""

    def mapped(c: Construction, node: Node) -> None:
        _bind_applied(c, node, f"{family}.forward")

    return mapped


def _gelu(c: Construction, node: Node) -> None:
    kind = {"none": "gelu", "tanh": "gelu_tanh"}.get(c.plain(node, "approximate", "none"))
    if kind is None:
        raise Unsupported(f"its approximation is {node.arguments.get('approximate')}")
    _bind_applied(c, node, f"{kind}.forward")


def _hardtanh(lowest: float, highest: float) -> Operation:
    """Hardtanh; the bounds are those of its default arguments."""

    def mapped(c: Construction, node: Node) -> None:
        bounds = c.plain(node, "min_val", lowest), c.plain(node, "max_val", highest)
        _bind_clamped(c, node, *bounds)

    return mapped


def _clamp(c: Construction, node: Node) -> None:
    lowest, highest = c.number(node, "min"), c.number(node, "max")
    if lowest == 0 and highest is None:
        _bind_applied(c, node, "relu.forward")
        return
    far = float(np.finfo(np.float32).max)
    _bind_clamped(c, node, -far if lowest is None else lowest, far if highest is None else highest)


def _bind_clamped(c: Construction, node: Node, lowest: float, highest: float) -> None:
    scalars = {"lowest": lowest, "highest": highest}
    _bind_applied(c, node, "clamp.forward", scalars)


def _leaky_relu(c: Construction, node: Node) -> None:
    slope = c.plain(node, "negative_slope", 0.01)
    if slope < 0:
        raise Unsupported(f"its slope is {slope}; it must not be negative")
    _bind_applied(c, node, "leaky_relu.forward", {"slope": slope})


def _elu(c: Construction, node: Node) -> None:
    c.require(node, scale=1, input_scale=1)
    alpha = c.plain(node, "alpha", 1.0)
    if alpha <= 0:
        raise Unsupported(f"its alpha is {alpha}; it must be positive")
    _bind_applied(c, node, "elu.forward", {"alpha": alpha})


def _softplus(c: Construction, node: Node) -> None:
    c.require(node, beta=1, threshold=20)
    _bind_applied(c, node, "softplus.forward")


def _mish(c: Construction, node: Node) -> None:
    """x * tanh(softplus(x))."""
    x = all_of(c, node)
    y = applied(c, node, "softplus.forward", x, part="softplus")
    y = applied(c, node, "tanh.forward", y, part="tanh")
    c.bind(node, elementwise(c, node, "multiply.forward", x, x.value, y.value))


def all_of(c: Construction, node: Node) -> View:
    """The first operand in any order; a copy of it if it is a part of a tensor."""
    return _all(c, node, c.subject(node))


def _all(c: Construction, node: Node, view: View) -> View:
    return view if view.has_all else View.whole(c.stored(node, view))


def _bind_applied(
    c: Construction, node: Node, kind: str, scalars: Mapping[str, float] | None = None
) -> None:
    c.bind(node, applied(c, node, kind, c.subject(node), scalars=scalars))


def applied(
    c: Construction,
    node: Node,
    kind: str,
    view: View,
    *,
    scalars: Mapping[str, float] | None = None,
    part: str = "",
) -> View:
    """Append a function of one tensor, and return the result in the tensor's order.

    Of repeated elements, it is computed once.
    """
    once = _all(c, node, view.without_repetitions(len(view.shape)))
    result = elementwise(c, node, kind, once, once.value, scalars=scalars, part=part)
    return result.expanded(view.shape)


def elementwise(
    c: Construction,
    node: Node,
    kind: str,
    view: View,
    *reads: Value,
    scalars: Mapping[str, float] | None = None,
    part: str = "",
) -> View:
    """Append an operation on the elements in the order in which they are stored.

    ``view`` has all of them.
    """
    stored = view.value.shape
    spec = OpSpec.of(kind, elements=math.prod(stored))
    return view.of(c.layer(node, spec, reads, shape=stored, scalars=scalars, part=part))


def _dropout(c: Construction, node: Node) -> None:
    probability = c.plain(node, "p", 0.5)
    x = all_of(c, node)  # a copy of repeated elements, each of which has a draw of its own
    if c.plain(node, "train", False) and probability != 0:
        c.dropouts += 1
        scalars = {"probability": probability, "seed": float(c.dropouts)}
        x = elementwise(c, node, "dropout.forward", x, x.value, scalars=scalars)
    c.bind(node, x)


_FUNCTIONS = {
    **{name: name for name in ("relu", "tanh", "sigmoid", "silu", "square")},
    **{"hardsigmoid": "hard_sigmoid", "hardswish": "hard_swish", "abs": "absolute"},
    **{"exp": "exponential", "log": "logarithm", "reciprocal": "reciprocal"},
    **{"sqrt": "square_root", "rsqrt": "reciprocal_root"},
}
"""Families by ATen's names."""

ELEMENTWISE: Mapping[str, Operation] = {
    **{f"{name}.default": _function(family) for name, family in _FUNCTIONS.items()},
    "gelu.default": _gelu,
    "hardtanh.default": _hardtanh(-1.0, 1.0),
    "relu6.default": _hardtanh(0.0, 6.0),
    **dict.fromkeys(("clamp.default", "clamp_min.default", "clamp_max.default"), _clamp),
    "leaky_relu.default": _leaky_relu,
    "elu.default": _elu,
    "softplus.default": _softplus,
    "mish.default": _mish,
    "dropout.default": _dropout,
}

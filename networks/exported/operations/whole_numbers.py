"""Whole numbers that are computed from inputs: positions, masks and indices.

They are real numbers from the first operation on them to the one that takes them as indices; what
is true is 1, what is false 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation
from networks.exported.operations.elementwise import all_of, applied
from networks.exported.program import Node
from networks.exported.views import View


def equal_to(c: Construction, node: Node, view: View, number: float) -> View:
    """1 where the tensor is the number, else 0; no gradient flows through it."""
    found = applied(c, node, "equal_number.forward", view, scalars={"number": number})
    c.stop_gradient()
    return found


def opposite(c: Construction, node: Node, view: View) -> View:
    """1 - x."""
    less = applied(
        c, node, "multiply_number.forward", view, scalars={"factor": -1.0}, part="negative"
    )
    return applied(c, node, "add_number.forward", less, scalars={"addend": 1.0}, part="opposite")


def as_truth(c: Construction, node: Node, view: View) -> View:
    """1 where the tensor is not 0, else 0."""
    return opposite(c, node, equal_to(c, node, view, 0.0))


def _cumulative_sum(c: Construction, node: Node) -> None:
    view = all_of(c, node)
    axis = c.axis(node, view)
    order = view.stored_axes
    if view.shape[axis] == 1:
        c.bind(node, view)
        return
    place = order.index(axis)
    before, after = (
        [view.shape[each] for each in part] for part in (order[:place], order[place + 1 :])
    )
    spec = OpSpec.of(
        "cumulative_sum.forward",
        outer=math.prod(before),
        size=view.shape[axis],
        inner=math.prod(after),
    )
    c.bind(node, view.of(c.layer(node, spec, (view.value,), shape=view.value.shape)))


WHOLE_NUMBERS: Mapping[str, Operation] = {
    "cumsum.default": _cumulative_sum,
}

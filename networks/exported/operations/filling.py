"""Changes in place of a part of a tensor: numbers, or the elements of another one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from devices.operation import OpSpec
from networks.exported.constants import MOST_ELEMENTS
from networks.exported.construction import (
    Construction,
    Operation,
    Unsupported,
    copied_elements,
)
from networks.exported.program import FLOAT32, INT64, Node
from networks.exported.views import View
from networks.training.network import Value


def _fill(c: Construction, node: Node) -> None:
    """Set all elements of a view to a number."""
    number = c.number(node, "value") if "value" in node.arguments else 0.0
    if number is None:
        raise Unsupported("its value is computed", "a number")
    view = _changed_view(c, node)
    shown = _others(view)
    rest = _without(c, node, view, shown)
    if number:
        addend = c.new_constant(node, "numbers", np.where(shown == 0, number, 0.0)).value
        rest = _sum(c, node, rest, addend)
    _rebind(c, node, view, rest)


def _copy(c: Construction, node: Node) -> None:
    """Set all elements of a view to those of another tensor."""
    view = _changed_view(c, node)
    source = c.stored(node, c.expanded(c.view(node, "src"), view.shape))
    if view.is_row_major:
        _rebind(c, node, view, Value(source.name, view.value.shape, source.kind))
        return
    spec = OpSpec.of("pad.forward", **copied_elements(view))
    placed = c.layer(node, spec, (source,), shape=view.value.shape, part="placed")
    rest = _without(c, node, view, _others(view))
    _rebind(c, node, view, _sum(c, node, rest, placed))


def _changed_view(c: Construction, node: Node) -> View:
    view = c.subject(node)  # a tensor, or it raises
    if not node.is_in_place or c.meta(node).dtype not in {FLOAT32, INT64}:
        raise Unsupported("it sets elements of a tensor that is neither float32 nor int64")
    program, origin = c.program, c.sharing.origin(node.reads[0])
    kept = {*program.parameters, *program.buffers, *program.constants}
    if origin in kept or any(c.constant(each) is not None for each in (origin, node.reads[0])):
        raise Unsupported(
            "it changes a parameter, a buffer or a constant in place, and the change would be lost",
            "a copy of it (clone)",
        )
    if view.value.kind == "input" or 0 in view.strides:
        raise Unsupported(f"it changes the {view.value.kind} {view.value.name}")
    if view.value.elements > MOST_ELEMENTS:
        raise Unsupported(f"it changes a part of {view.value.elements} elements")
    return view


def _others(view: View) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """1 for each element of the stored tensor that the view does not have, else 0."""
    shown = np.ones(view.value.elements, np.float32)
    strides = tuple(stride * shown.itemsize for stride in view.strides)
    np.lib.stride_tricks.as_strided(shown[view.offset :], view.shape, strides)[...] = 0
    return shown


def _without(
    c: Construction, node: Node, view: View, shown: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> Value:
    """The stored tensor with zeros in place of the view's elements."""
    value = view.value
    sizes = {"outer": 1, "middle": value.elements, "between": 1, "inner": 1}
    spec = OpSpec.of("broadcast_select.forward", **sizes)
    reads = (value, c.new_constant(node, "others", shown).value)
    return c.layer(node, spec, reads, shape=value.shape, part="others")


def _sum(c: Construction, node: Node, left: Value, right: Value) -> Value:
    spec = OpSpec.of("add.forward", elements=left.elements)
    return c.layer(node, spec, (left, right), shape=left.shape)


def _rebind(c: Construction, node: Node, view: View, changed: Value) -> None:
    """Let all views of the tensor in PyTorch have the changed elements."""
    if node.without_gradient:
        raise Unsupported("it changes a tensor in place without a gradient (torch.no_grad)")
    c.change(node, view.value.name, changed)
    c.views[node.outputs[0]] = view.of(changed)
    c.maker[node.outputs[0]] = node


FILLING: Mapping[str, Operation] = {
    **dict.fromkeys(("fill.Scalar", "fill.Tensor", "zero.default"), _fill),
    "copy.default": _copy,
}

"""Views: parts, transposes and repetitions. Numbers move only where an operation needs it."""

from __future__ import annotations

from collections.abc import Mapping

from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import Node
from networks.exported.views import View
from networks.training.network import Value


def _reshape(c: Construction, node: Node) -> None:
    view, shape = c.subject(node), c.meta(node).shape
    reshaped = view.reshaped(shape)
    if reshaped is None:
        copy = c.stored(node, view)
        reshaped = View.whole(Value(copy.name, shape, copy.kind))
    if node.target.startswith("aten.view"):
        c.bind(node, reshaped)
    else:
        c.bind_copy(node, reshaped)


def _transpose(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    axes = list(range(len(view.shape)))
    first, second = c.axis(node, view, "dim0"), c.axis(node, view, "dim1")
    axes[first], axes[second] = axes[second], axes[first]
    c.bind(node, view.permuted(tuple(axes)))


def _permute(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    c.bind(node, view.permuted(c.axes(node, "dims", len(view.shape), ())))


def _slice(c: Construction, node: Node) -> None:
    view, shape = c.view(node, "self"), c.meta(node).shape
    axis = c.axis(node, view)
    start, step = c.plain(node, "start", 0), c.plain(node, "step", 1)
    start = max(0, start + view.shape[axis] if start < 0 else start)
    c.bind(node, view.part(axis, start, shape[axis], step))


def _select(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    axis = c.axis(node, view)
    index = c.plain(node, "index", 0) % view.shape[axis]
    parts = c.parts.get(node.reads[0], {})
    if axis == 0 and index in parts:
        c.bind(node, parts[index])
        return
    c.bind(node, view.part(axis, index, 1).without(axis))


def _unbind(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    axis = c.axis(node, view)
    c.bind(node, *(view.part(axis, i, 1).without(axis) for i in range(view.shape[axis])))


def _split(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    axis = c.axis(node, view)
    parts, start = [], 0
    for name in node.outputs:
        size = c.program.tensors[name].shape[axis]
        parts.append(view.part(axis, start, size))
        start += size
    c.bind(node, *parts)


def _expand(c: Construction, node: Node) -> None:
    c.bind(node, c.view(node, "self").expanded(c.meta(node).shape))


def _same(c: Construction, node: Node) -> None:
    """A copy that only matters to PyTorch: layouts here are those of the operations."""
    c.bind_copy(node, c.subject(node))


def _converted(c: Construction, node: Node) -> None:
    """Another type or device: the same numbers, as the only type that is computed with is one."""
    view = c.subject(node)
    before, after = c.program.tensors[node.reads[0]], c.meta(node)
    if before.dtype != after.dtype:
        raise Unsupported(f"it makes {after.dtype_name} of {before.dtype_name}")
    c.bind_copy(node, view)


def _detached(c: Construction, node: Node) -> None:
    view = c.subject(node)
    if not c.is_zero(view) and view.value.kind != "input":
        raise Unsupported("it stops gradients", "requires_grad_(False) on parameters")
    c.bind(node, view)


def _broadcast(c: Construction, node: Node) -> None:
    c.bind(node, *(view.expanded(c.meta(node).shape) for view in c.views_of(node, "tensors")))


def _zeros(c: Construction, node: Node) -> None:
    c.bind_zeros(node)


VIEWS: Mapping[str, Operation] = {
    **dict.fromkeys(("zeros.default", "new_zeros.default", "zeros_like.default"), _zeros),
    **dict.fromkeys(
        ("view.default", "reshape.default", "flatten.using_ints", "unflatten.int"), _reshape
    ),
    **dict.fromkeys(
        ("unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims"), _reshape
    ),
    "transpose.int": _transpose,
    "permute.default": _permute,
    **dict.fromkeys(("contiguous.default", "clone.default", "alias.default"), _same),
    **dict.fromkeys(("to.dtype", "to.dtype_layout", "to.device", "to.other"), _converted),
    "detach.default": _detached,
    "slice.Tensor": _slice,
    "select.int": _select,
    "unbind.int": _unbind,
    **dict.fromkeys(
        ("split.Tensor", "split_with_sizes.default", "chunk.default", "split.sizes"), _split
    ),
    "expand.default": _expand,
    "broadcast_tensors.default": _broadcast,
}

"""Views: parts, transposes and repetitions. Numbers move only where an operation needs it."""

from __future__ import annotations

from collections.abc import Mapping

from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.operations.whole_numbers import as_truth
from networks.exported.program import BOOL, FLOAT32, INT32, INT64, Node
from networks.exported.views import Merged, View


def _reshape(c: Construction, node: Node) -> None:
    view, merged, shape = c.subject(node), c.merged(node), c.meta(node).shape
    parts = view if merged is None else merged.view
    reshaped = parts.reshaped(shape)
    if reshaped is None:
        _bind_reshaped(c, node, view)
        c.bind_merged(node, Merged.of(parts, shape))
    else:
        _bind_reshaped(c, node, reshaped)


def _bind_reshaped(c: Construction, node: Node, view: View) -> None:
    shape = c.meta(node).shape
    reshaped = view.reshaped(shape)
    if reshaped is None:
        reshaped = c.reshaped_copy(node, view, shape)
    c.bind(node, reshaped)


def _transpose(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    axes = list(range(len(view.shape)))
    first, second = c.axis(node, view, "dim0"), c.axis(node, view, "dim1")
    axes[first], axes[second] = axes[second], axes[first]
    _bind_permuted(c, node, tuple(axes))


def _permute(c: Construction, node: Node) -> None:
    _bind_permuted(c, node, c.axes(node, "dims", len(c.view(node, "self").shape), ()))


def _bind_permuted(c: Construction, node: Node, order: tuple[int, ...]) -> None:
    merged = c.merged(node)
    c.bind(node, c.view(node, "self").permuted(order))
    c.bind_merged(node, merged and merged.permuted(order))


def _reversed(c: Construction, node: Node) -> None:
    _bind_permuted(c, node, (*reversed(range(len(c.view(node, "self").shape))),))


def _matrix_transpose(c: Construction, node: Node) -> None:
    axes = len(c.view(node, "self").shape)
    if axes < 2:
        raise Unsupported(f"it transposes a tensor of {axes} axes")
    *batch, rows, columns = range(axes)
    _bind_permuted(c, node, (*batch, columns, rows))


def _slice(c: Construction, node: Node) -> None:
    view, shape = c.view(node, "self"), c.meta(node).shape
    axis = c.axis(node, view)
    start, step = c.plain(node, "start", 0), c.plain(node, "step", 1)
    start = max(0, start + view.shape[axis] if start < 0 else start)
    c.bind(node, view.part(axis, start, shape[axis], step))


def _select(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    axis = c.axis(node, view)
    index, size = c.plain(node, "index", 0), view.shape[axis]
    if not -size <= index < size:
        raise Unsupported(f"it selects number {index} of {size}")
    index %= size
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
    c.bind(node, c.expanded(c.view(node, "self"), c.meta(node).shape))


def _same(c: Construction, node: Node) -> None:
    """A copy that only matters to PyTorch: layouts here are those of the operations."""
    c.bind(node, c.subject(node))
    c.bind_merged(node, c.merged(node))


def _converted(c: Construction, node: Node) -> None:
    """Another type or device: the same numbers, as the only type that is computed with is one.

    Real numbers are not rounded to whole ones.
    """
    view = c.subject(node)
    before, after = c.program.tensors[node.reads[0]], c.meta(node)
    if before.dtype != after.dtype:
        if after.dtype not in _COMPUTED[before.dtype == FLOAT32]:
            raise Unsupported(f"it makes {after.dtype_name} of {before.dtype_name}")
        if after.dtype == BOOL:
            view = as_truth(c, node, view)
    c.bind(node, view)


_COMPUTED = ({FLOAT32, INT64, INT32, BOOL}, {BOOL})
"""Types that tensors can be given: those that are not real numbers, and those that are."""


def _detach(c: Construction, node: Node) -> None:
    c.bind(node, c.detached(node, c.view(node, "self")))


def _repeat(c: Construction, node: Node) -> None:
    """Repetitions along axes: each becomes an axis of its own, then one axis with the elements."""
    view = c.view(node, "self")
    times = c.integers(node, "repeats", ())
    view = c.expanded(view, (*(1 for _ in times[len(view.shape) :]), *view.shape))
    for axis in reversed(range(len(times))):
        view = view.within(axis)
    shape = tuple(n for pair in zip(times, view.shape[1::2], strict=True) for n in pair)
    _bind_reshaped(c, node, c.expanded(view, shape))


def _broadcast(c: Construction, node: Node) -> None:
    c.bind(node, *(c.expanded(view, c.meta(node).shape) for view in c.views_of(node, "tensors")))


VIEWS: Mapping[str, Operation] = {
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
    "type_as.default": _converted,
    "detach.default": _detach,
    "repeat.default": _repeat,
    **dict.fromkeys(("t.default", "numpy_T.default"), _reversed),
    "mT.default": _matrix_transpose,
    "slice.Tensor": _slice,
    "select.int": _select,
    "unbind.int": _unbind,
    **dict.fromkeys(
        ("split.Tensor", "split_with_sizes.default", "chunk.default", "split.sizes"), _split
    ),
    "expand.default": _expand,
    "broadcast_tensors.default": _broadcast,
}

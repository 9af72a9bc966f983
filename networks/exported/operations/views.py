"""Views and copies that move no number."""

from __future__ import annotations

from collections.abc import Mapping

from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import Node


def _reshape(c: Construction, node: Node) -> None:
    view = c.view(node, next(iter(node.arguments))).reshaped(c.meta(node).shape)
    if view is None:
        raise Unsupported(
            "it needs a transposing copy, which is not among the kernels",
            "flatten before transposing",
        )
    c.set(node, view)


def _transpose(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    axes = list(range(len(view.shape)))
    first, second = c.plain(node, "dim0", 0), c.plain(node, "dim1", 0)
    axes[first], axes[second] = axes[second], axes[first]
    c.set(node, view.permuted(tuple(axes)))


def _permute(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    c.set(
        node, view.permuted(tuple(axis % len(view.shape) for axis in c.integers(node, "dims", ())))
    )


def _same(c: Construction, node: Node) -> None:
    """A copy that only matters to PyTorch: layouts here are those of the operations."""
    c.set(node, c.view(node, next(iter(node.arguments))))


def _same_shapes(c: Construction, node: Node) -> None:
    """Broadcasting, of tensors that have one shape already."""
    views = c.views_of(node, "tensors")
    if len({view.shape for view in views}) != 1:
        raise Unsupported(f"it broadcasts shapes {', '.join(str(view.shape) for view in views)}")
    c.set(node, *views)


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
    "broadcast_tensors.default": _same_shapes,
}

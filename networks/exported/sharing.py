"""Tensors of a program that share memory in PyTorch, whatever they have become here."""

from __future__ import annotations

from collections.abc import Mapping

from networks.exported.program import Node, TensorMeta

PARTS = frozenset(
    {
        *("slice.Tensor", "select.int", "view.default", "transpose.int", "permute.default"),
        *("unsqueeze.default", "squeeze.dim", "squeeze.default", "squeeze.dims", "t.default"),
        *("alias.default", "detach.default", "unbind.int", "split.Tensor", "chunk.default"),
        *("split_with_sizes.default", "expand.default", "unflatten.int", "split.sizes"),
        *("numpy_T.default", "mT.default", "swapaxes.default", "diagonal.default"),
        *("movedim.int", "movedim.intlist", "moveaxis.int", "unfold.default"),
        *("view_as.default", "expand_as.default"),
    }
)
"""Operations whose results are views of the first operand in PyTorch."""

_PERHAPS_PARTS = frozenset(
    {
        *("reshape.default", "flatten.using_ints", "reshape_as.default", "contiguous.default"),
        *("to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as.default"),
        *("broadcast_tensors.default", "dropout.default", "feature_dropout.default"),
    }
)
"""Operations whose results may be the operand itself or a view of it."""


class Sharing:
    """Which tensors share memory, by the nodes that made them and the tensors' types."""

    def __init__(self, maker: Mapping[str, Node], tensors: Mapping[str, TensorMeta]) -> None:
        self._maker, self._tensors = maker, tensors

    def root(self, name: str) -> str:
        """The tensor of which one is a view."""
        while (node := self._maker.get(name)) is not None and _makes_part(node):
            name = node.reads[0]
        return name

    def origin(self, name: str) -> str:
        """The tensor of which one is a view, or may be one."""
        while (node := self._maker.get(name)) is not None:
            if not (_makes_part(node) or self._may_make_part(node, name)):
                break
            # Only tensors that are broadcast together are several.
            name = node.reads[node.outputs.index(name) if len(node.reads) > 1 else 0]
        return name

    def _may_make_part(self, node: Node, made: str) -> bool:
        operation = _operation(node)
        if operation not in _PERHAPS_PARTS:
            return False
        drops = "dropout" in operation and node.arguments.get("train") and node.arguments.get("p")
        return not drops and self._tensors[node.reads[0]].dtype == self._tensors[made].dtype


def _makes_part(node: Node) -> bool:
    return node.is_in_place or _operation(node) in PARTS


def _operation(node: Node) -> str:
    return (node.stated or node.target).removeprefix("aten.")

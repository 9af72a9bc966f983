"""GELU as older sets of operations state it: x * (1 + erf(x / √2)) / 2, in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import NodeProto

_NEAR = 1e-3


def with_gelus(
    nodes: Sequence[NodeProto], number: Callable[[str], float | None], returned: Iterable[str]
) -> list[NodeProto]:
    """The nodes with a ``Gelu`` in the place of the last node of each such composition.

    Args:
        nodes: The graph's nodes.
        number: The only element of a constant; None of another tensor.
        returned: Tensors that the graph returns.
    """
    found = _Compositions(nodes, number, returned)
    last = dict(found.last_and_source(node) for node in nodes if node.op_type == "Erf")
    return [_gelu(node, last[node.output[0]]) if _makes(node, last) else node for node in nodes]


def _makes(node: NodeProto, last: dict[str, str]) -> bool:
    return len(node.output) == 1 and node.output[0] in last and node.output[0] != ""


def _gelu(node: NodeProto, source: str) -> NodeProto:
    from onnx.helper import make_node

    return make_node("Gelu", [source], list(node.output), name=node.name)


class _Compositions:
    def __init__(
        self,
        nodes: Sequence[NodeProto],
        number: Callable[[str], float | None],
        returned: Iterable[str],
    ) -> None:
        self._number = number
        self._maker = {name: node for node in nodes for name in node.output if name}
        self._readers: dict[str, list[NodeProto | None]] = {name: [None] for name in returned}
        for node in nodes:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def last_and_source(self, erf: NodeProto) -> tuple[str, str]:
        """Result and operand of the composition of an ``Erf``; empty names if it has none."""
        source = self._scaled(self._maker.get(erf.input[0]) if erf.input else None)
        shifted = self._only_reader(erf.output[0], "Add")
        if source is None or not self._has(shifted, 1.0):
            return "", ""
        # Of the product of this sum, the operand and a half, two factors are multiplied first.
        product = self._only_reader(shifted.output[0], "Mul") if shifted is not None else None
        for factor in self._others(product, shifted):
            if product is None:
                break
            if self._is_half_of(factor, source):
                return product.output[0], source
            last = self._only_reader(product.output[0], "Mul")
            if last is not None and (
                (factor == source and self._has(last, 0.5))
                or (self._is(factor, 0.5) and source in last.input)
            ):
                return last.output[0], source
        return "", ""

    def _scaled(self, node: NodeProto | None) -> str | None:
        """The tensor that is divided by √2."""
        if node is None or len(node.input) != 2:
            return None
        left, right = map(str, node.input)
        if node.op_type == "Div" and self._is(right, math.sqrt(2)):
            return left
        if node.op_type == "Mul":
            for one, other in ((left, right), (right, left)):
                if self._is(other, math.sqrt(0.5)):
                    return one
        return None

    def _is_half_of(self, name: str, source: str) -> bool:
        node = self._maker.get(name)
        return (
            node is not None
            and node.op_type == "Mul"
            and source in node.input
            and self._has(node, 0.5)
        )

    def _only_reader(self, name: str, kind: str) -> NodeProto | None:
        readers = self._readers.get(name, [])
        node = readers[0] if len(readers) == 1 else None
        is_pair = node is not None and len(node.input) == 2 and len(node.output) == 1
        return node if node is not None and is_pair and node.op_type == kind else None

    def _others(self, node: NodeProto | None, maker: NodeProto | None) -> list[str]:
        if node is None or maker is None:
            return []
        return [name for name in node.input if name != maker.output[0]]

    def _has(self, node: NodeProto | None, number: float) -> bool:
        return node is not None and any(self._is(name, number) for name in node.input)

    def _is(self, name: str, number: float) -> bool:
        found = self._number(name)
        return found is not None and math.isclose(found, number, rel_tol=_NEAR)

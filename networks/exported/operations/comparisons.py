"""Comparisons, and what is true or false: 1 or 0, without a gradient.

A difference d is compared with 0: where it is not positive, max(d, 0) is 0. The difference of two
numbers of float32 is 0 only if they are equal, unless a processor rounds the smallest ones to 0.
That of two infinities is no number: the largest finite numbers stand for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.operations.arithmetic import pairwise, plus, times
from networks.exported.operations.elementwise import applied
from networks.exported.operations.whole_numbers import as_truth, equal_to, opposite
from networks.exported.program import BOOL, FLOAT32, Node, Reference
from networks.exported.views import View

_LARGEST = float(np.finfo(np.float32).max)


def _apart(c: Construction, node: Node) -> View:
    """self - other."""
    left, number = c.view(node, "self"), c.number(node, "other")
    if number is not None:
        if math.isinf(number):
            left, number = _finite(c, node, left), math.copysign(_LARGEST, number)
        return plus(c, node, left, -number)
    right = c.view(node, "other")
    if all(_may_be_infinite(c, node, name) for name in ("self", "other")):
        left, right = _finite(c, node, left), _finite(c, node, right)
    return pairwise(c, node, "add", left, times(c, node, right, -1.0))


def _may_be_infinite(c: Construction, node: Node, name: str) -> bool:
    """Whether an operand may be infinite. Those of composed operations are taken to be finite."""
    given, known = node.arguments[name], c.constant_of(node, name)
    is_float = isinstance(given, Reference) and c.program.tensors[given.name].dtype == FLOAT32
    return is_float and not node.stated and (known is None or not np.isfinite(known).all())


def _finite(c: Construction, node: Node, view: View) -> View:
    scalars = {"lowest": -_LARGEST, "highest": _LARGEST}
    return applied(c, node, "clamp.forward", view, scalars=scalars, part="finite")


def _is_equal(c: Construction, node: Node) -> View:
    number = c.number(node, "other")
    if number is None:
        return equal_to(c, node, _apart(c, node), 0.0)
    return equal_to(c, node, c.view(node, "self"), number)


def _is_at_most(c: Construction, node: Node, sign: float) -> View:
    """1 where self <= other and 0 elsewhere; with sign -1, 1 where self >= other."""
    apart = times(c, node, _apart(c, node), sign, part="turned")
    above = applied(c, node, "relu.forward", apart, part="above")
    return equal_to(c, node, above, 0.0)


def _equal(c: Construction, node: Node) -> None:
    c.bind(node, _is_equal(c, node))


def _not_equal(c: Construction, node: Node) -> None:
    c.bind(node, opposite(c, node, _is_equal(c, node)))


def _ordered(sign: float, *, strict: bool) -> Operation:
    """self <= other with sign 1, self >= other with -1; strict, self < other or self > other."""

    def mapped(c: Construction, node: Node) -> None:
        found = _is_at_most(c, node, -sign if strict else sign)
        c.bind(node, opposite(c, node, found) if strict else found)

    return mapped


# --- logic ------------------------------------------------------------------------------------


def _truths(c: Construction, node: Node) -> tuple[View, View]:
    """Both operands as 1 or 0."""
    _refuse_bits(c, node)
    left, right = (c.view(node, name) for name in ("self", "other"))
    return _as_truth(c, node, "self", left), _as_truth(c, node, "other", right)


def _refuse_bits(c: Construction, node: Node) -> None:
    if c.meta(node).dtype != BOOL:
        raise Unsupported("it computes with the bits of numbers", "a comparison, such as x == 0")


def _as_truth(c: Construction, node: Node, name: str, view: View) -> View:
    given = node.arguments[name]
    is_truth = isinstance(given, Reference) and c.program.tensors[given.name].dtype == BOOL
    return view if is_truth else as_truth(c, node, view)


def _both(c: Construction, node: Node) -> None:
    c.bind(node, pairwise(c, node, "multiply", *_truths(c, node)))


def _either(c: Construction, node: Node) -> None:
    count = pairwise(c, node, "add", *_truths(c, node))
    c.bind(node, as_truth(c, node, count))


def _one_of_two(c: Construction, node: Node) -> None:
    count = pairwise(c, node, "add", *_truths(c, node))
    c.bind(node, equal_to(c, node, count, 1.0))


def _not(c: Construction, node: Node) -> None:
    _refuse_bits(c, node)
    c.bind(node, equal_to(c, node, c.view(node, "self"), 0.0))


def _of_both_kinds(name: str, operation: Operation) -> dict[str, Operation]:
    return {f"{name}.Scalar": operation, f"{name}.Tensor": operation}


COMPARISONS: Mapping[str, Operation] = {
    **_of_both_kinds("eq", _equal),
    **_of_both_kinds("ne", _not_equal),
    **_of_both_kinds("le", _ordered(1.0, strict=False)),
    **_of_both_kinds("ge", _ordered(-1.0, strict=False)),
    **_of_both_kinds("lt", _ordered(1.0, strict=True)),
    **_of_both_kinds("gt", _ordered(-1.0, strict=True)),
    **dict.fromkeys(("logical_and.default", "bitwise_and.Tensor", "__and__.Tensor"), _both),
    **dict.fromkeys(("logical_or.default", "bitwise_or.Tensor", "__or__.Tensor"), _either),
    **dict.fromkeys(("logical_xor.default", "bitwise_xor.Tensor", "__xor__.Tensor"), _one_of_two),
    **dict.fromkeys(("logical_not.default", "bitwise_not.default"), _not),
}

"""Products of matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import Node
from networks.exported.views import View
from networks.training.network import Value


def _matmul(c: Construction, node: Node) -> None:
    left, right = c.view(node, "self"), c.view(node, "other")
    shape = c.meta(node).shape
    # A vector is a matrix of one row on the left, of one column on the right.
    left_axes, right_axes = len(left.shape), len(right.shape)
    if left_axes == 1:
        left = left.with_axes(0, 2)
    if right_axes == 1:
        right = right.with_axes(1, 2)
    product = matmul(c, node, left, right)
    if left_axes == 1:
        product = product.without(len(product.shape) - 2)
    if right_axes == 1:
        product = product.without(len(product.shape) - 1)
    if product.shape != shape:
        raise Unsupported(f"its operands have shapes {left.shape} and {right.shape}")
    c.bind(node, product)


def _batched(c: Construction, node: Node) -> None:
    c.bind(node, matmul(c, node, c.view(node, "self"), c.view(node, "mat2")))


def _sum_with_product(names: tuple[str, str]) -> Operation:
    """beta * self + alpha * product."""

    def mapped(c: Construction, node: Node) -> None:
        product = matmul(c, node, *(c.view(node, name) for name in names), part="product")
        made = _times(c, node, c.stored(node, product), "alpha")
        if c.plain(node, "beta", 1.0) == 0:
            c.bind(node, View.whole(made))
            return
        addend = _times(c, node, c.value(node, "self"), "beta")
        view = c.expanded(View.whole(addend), made.shape)
        repeated = len(made.shape) - len(addend.shape)
        if not view.has_all and addend.shape == made.shape[repeated:]:
            sizes = {
                "outer": math.prod(made.shape[:repeated]),
                "middle": 1,
                "between": 1,
                "inner": addend.elements,
            }
            spec = OpSpec.of("broadcast_add.forward", **sizes)
        else:
            spec = OpSpec.of("add.forward", elements=made.elements)
            addend = c.stored(node, view)
        c.bind(node, View.whole(c.layer(node, spec, (made, addend), shape=made.shape)))

    return mapped


def _times(c: Construction, node: Node, value: Value, name: str) -> Value:
    """The value times a number that the node names, which is mostly 1."""
    factor = c.plain(node, name, 1.0)
    if factor == 1:
        return value
    spec = OpSpec.of("multiply_number.forward", elements=value.elements)
    return c.layer(
        node, spec, (value,), shape=value.shape, scalars={"factor": float(factor)}, part=name
    )


def _einsum(c: Construction, node: Node) -> None:
    """One product of two tensors, whose axes are first brought into its order."""
    equation, views = c.plain(node, "equation", ""), c.views_of(node, "tensors")
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != 2 or not arrow or not all(map(str.isalpha, (*terms, result))):
        raise Unsupported(f"{equation!r} is not a product of two tensors with named axes")
    left, right = map(list, terms)
    batch = [name for name in result if name in left and name in right]
    summed = [name for name in left if name in right and name not in result]
    rows = [name for name in result if name in left and name not in right]
    columns = [name for name in result if name in right and name not in left]
    for term, known in ((left, {*batch, *summed, *rows}), (right, {*batch, *summed, *columns})):
        if len(set(term)) < len(term) or set(term) != known:
            raise Unsupported(f"{equation!r} is not one product of matrices")
    if [len(view.shape) for view in views] != [len(left), len(right)] or set(result) != {
        *batch,
        *rows,
        *columns,
    }:
        raise Unsupported(f"{equation!r} does not fit its operands")
    size = dict(zip(left, views[0].shape, strict=True))
    if any(size.setdefault(*each) != each[1] for each in zip(right, views[1].shape, strict=True)):
        raise Unsupported(f"{equation!r} does not fit its operands")

    def matrices(view: View, term: list[str], first: list[str], second: list[str]) -> View:
        """The operand as [batch ..., first, second], copied if its axes do not join."""
        ordered = view.permuted(tuple(term.index(name) for name in (*batch, *first, *second)))
        shape = (
            *(size[name] for name in batch),
            math.prod(size[name] for name in first),
            math.prod(size[name] for name in second),
        )
        joined = ordered.reshaped(shape)
        if joined is None:
            joined = View.whole(c.stored(node, ordered)).reshaped(shape)
        assert joined is not None, "a stored tensor can be reshaped"
        return joined

    product = matmul(
        c,
        node,
        matrices(views[0], left, rows, summed),
        matrices(views[1], right, summed, columns),
    )
    made = [*batch, *rows, *columns]
    whole = product.reshaped(tuple(size[name] for name in made))
    if whole is None:
        raise Unsupported(f"{equation!r} does not fit its operands")
    c.bind(node, whole.permuted(tuple(made.index(name) for name in result)))


def matmul(c: Construction, node: Node, left: View, right: View, *, part: str = "") -> View:
    """Append the product of matrices [..., rows, depth] and [..., depth, columns]."""
    if min(len(left.shape), len(right.shape)) < 2:
        raise Unsupported(f"its operands have shapes {left.shape} and {right.shape}")
    *left_batch, rows, depth = left.shape
    *right_batch, right_depth, columns = right.shape
    if depth != right_depth:
        raise Unsupported(f"its operands have shapes {left.shape} and {right.shape}")
    if math.prod(right_batch) == 1:
        # One matrix for all: the rows of all matrices on the left are multiplied by it.
        shape = (*_common(left_batch, right_batch), rows, columns)
        merged = left.reshaped((math.prod(left_batch) * rows, depth))
        if merged is None:
            merged = View.whole(c.stored(node, left)).reshaped((math.prod(shape[:-1]), depth))
        single = right.reshaped((depth, columns))
        assert merged is not None, "a stored tensor can be reshaped"
        assert single is not None, "axes of size 1 can be left out"
        output = _stored_product(c, node, merged, single, part)
        return View.whole(Value(output.name, shape, output.kind))
    batch = _common(left_batch, right_batch)
    left, right = (
        c.expanded(left, (*batch, rows, depth)),
        c.expanded(right, (*batch, depth, columns)),
    )
    output = _stored_product(c, node, left, right, part)
    return View.whole(Value(output.name, (*batch, rows, columns), output.kind))


def _common(left: list[int], right: list[int]) -> tuple[int, ...]:
    """Sizes of the axes of both, of which those of size 1 are repeated."""
    count = max(len(left), len(right))
    padded = ([1] * (count - len(sizes)) + sizes for sizes in (left, right))
    pairs = list(zip(*padded, strict=True))
    if any(a != b and 1 not in {a, b} for a, b in pairs):
        raise Unsupported(f"its operands are {left} and {right} matrices")
    return tuple(max(pair) for pair in pairs)


def _stored_product(c: Construction, node: Node, left: View, right: View, part: str) -> Value:
    *batch, rows, depth = left.shape
    columns = right.shape[-1]
    if not batch and right.permuted((1, 0)).is_row_major:
        spec = OpSpec.of(
            "linear.forward", rows=rows, in_features=depth, out_features=columns, bias=0
        )
        weight = c.stored(node, right.permuted((1, 0)))
        return c.layer(node, spec, (c.stored(node, left), weight), part=part)
    # The last of the axes before the matrices may be stored within their rows: the heads.
    splits = range(len(batch) + 1)
    layouts = [(_layout(left, split), _layout(right, split)) for split in splits]
    split, (of_left, of_right) = min(
        enumerate(layouts), key=lambda each: sum(layout.cost for layout in each[1])
    )
    if not of_left.interleaved and not of_right.interleaved:
        split = len(batch)  # one key for all of them
    spec = OpSpec.of(
        "matmul.forward",
        batch=math.prod(batch[:split]),
        heads=math.prod(batch[split:]),
        rows=rows,
        depth=depth,
        columns=columns,
        left_transposed=of_left.transposed,
        left_interleaved=of_left.interleaved,
        right_transposed=of_right.transposed,
        right_interleaved=of_right.interleaved,
    )
    reads = (c.stored(node, of_left.view), c.stored(node, of_right.view))
    return c.layer(node, spec, reads, part=part)


class _Layout(NamedTuple):
    """An order of an operand's axes in which it is stored, or copied.

    ``cost``: 0 if it is stored like this, 1 if a copy reads whole rows, else 2.
    """

    view: View
    transposed: int
    interleaved: int
    cost: int


def _layout(operand: View, split: int) -> _Layout:
    """The best layout of matrices whose axes from ``split`` on are heads."""
    *axes, first, second = range(len(operand.shape))
    found = []
    for transposed, interleaved in ((0, 0), (1, 0), (0, 1), (1, 1)):
        rows, columns = (second, first) if transposed else (first, second)
        heads = axes[split:]
        order = (*heads, rows) if not interleaved else (rows, *heads)
        view = operand.permuted((*axes[:split], *order, columns))
        cost = 0 if view.is_row_major else 1 if view.strides[-1] == 1 else 2
        found.append(_Layout(view, transposed, interleaved, cost))
    return min(found, key=lambda layout: layout.cost)


PRODUCTS: Mapping[str, Operation] = {
    "matmul.default": _matmul,
    "bmm.default": _batched,
    "mm.default": _batched,
    "baddbmm.default": _sum_with_product(("batch1", "batch2")),
    "addmm.default": _sum_with_product(("mat1", "mat2")),
    "einsum.default": _einsum,
}

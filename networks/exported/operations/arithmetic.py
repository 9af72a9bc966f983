"""Sums, products and reductions, of tensors with equal or different shapes and of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from devices.operation import OpSpec
from networks.exported.broadcasting import BROADCAST, sizes_of
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.operations.draws import raise_draws, scale_draws, times_draws
from networks.exported.operations.elementwise import all_of, applied, elementwise
from networks.exported.operations.whole_numbers import opposite
from networks.exported.operations.windows import global_average_pool
from networks.exported.patterns import rms_norm, rotary
from networks.exported.program import INT64, Node
from networks.exported.views import View
from networks.training.network import Value


def _add(c: Construction, node: Node) -> None:
    if not _counts_steps(c, node):
        _sum(c, node, c.plain(node, "alpha", 1.0))


def _subtract(c: Construction, node: Node) -> None:
    _sum(c, node, -c.plain(node, "alpha", 1.0))


def _sum(c: Construction, node: Node, alpha: float) -> None:
    """Bind self + alpha * other."""
    left, right = c.number(node, "self"), c.number(node, "other")
    if right is not None:
        if raise_draws(c, node, alpha * right):
            return
        result = plus(c, node, c.view(node, "self"), alpha * right)
    elif left is not None:
        result = plus(c, node, times(c, node, c.view(node, "other"), alpha), left)
    else:
        turned = rotary(c, node) if alpha == 1 else None
        if turned is not None:
            c.bind(node, turned)
            return
        other = times(c, node, c.view(node, "other"), alpha)
        result = pairwise(c, node, "add", c.view(node, "self"), other)
    c.bind(node, result)


def _reversed_subtract(c: Construction, node: Node) -> None:
    number = c.number(node, "other")
    if number is None:
        raise Unsupported("its other operand is a tensor", "a - b")
    alpha = c.plain(node, "alpha", 1.0)
    c.bind(node, plus(c, node, times(c, node, c.view(node, "self"), -alpha), number))


def _multiply(c: Construction, node: Node) -> None:
    left, right = c.number(node, "self"), c.number(node, "other")
    dropped = times_draws(c, node)
    if dropped is not None:
        c.bind(node, dropped)
    elif right is not None:
        if not scale_draws(c, node, right):
            c.bind(node, times(c, node, c.view(node, "self"), right))
    elif left is not None:
        c.bind(node, times(c, node, c.view(node, "other"), left))
    else:
        normed = rms_norm(c, node)
        c.bind(
            node,
            pairwise(c, node, "multiply", c.view(node, "self"), c.view(node, "other"))
            if normed is None
            else normed,
        )


def _divide(c: Construction, node: Node) -> None:
    c.require(node, rounding_mode=None)
    numerator, divisor = c.number(node, "self"), c.number(node, "other")
    if divisor == 0:
        raise Unsupported("it divides by 0")
    if divisor is not None:
        if not scale_draws(c, node, 1 / divisor):
            c.bind(node, times(c, node, c.view(node, "self"), 1 / divisor))
        return
    inverse = applied(c, node, "reciprocal.forward", c.view(node, "other"), part="inverse")
    if numerator is not None:
        c.bind(node, times(c, node, inverse, numerator))
    else:
        c.bind(node, pairwise(c, node, "multiply", c.view(node, "self"), inverse))


def _negate(c: Construction, node: Node) -> None:
    c.bind(node, times(c, node, c.view(node, "self"), -1.0))


_POWERS = {2.0: "square", 0.5: "square_root", -0.5: "reciprocal_root", -1.0: "reciprocal"}


def _power(c: Construction, node: Node) -> None:
    exponent = c.number(node, "exponent")
    x = c.view(node, "self")
    if exponent == 1:
        c.bind(node, x)
    elif exponent == 3:
        square = applied(c, node, "square.forward", x, part="square")
        c.bind(node, pairwise(c, node, "multiply", x, square))
    elif exponent in _POWERS:
        c.bind(node, applied(c, node, f"{_POWERS[exponent]}.forward", x))
    else:
        why = f"its exponent is {node.arguments.get('exponent')}"
        raise Unsupported(why, "one from -64 to 64, but not 0")


def _prelu(c: Construction, node: Node) -> None:
    """x + (w - 1) * min(x, 0), with one w for all elements or one for each channel.

    The minimum's bound is above 0, so that the slope at 0 is w.
    """
    x, weight = c.view(node, "self"), c.view(node, "weight")
    slopes = weight.reshaped((math.prod(weight.shape), *(1,) * max(0, len(x.shape) - 2)))
    assert slopes is not None, "axes of size 1 can be added and left out"
    floats = np.finfo(np.float32)
    scalars = {"lowest": -float(floats.max), "highest": float(floats.tiny)}
    negative = applied(c, node, "clamp.forward", x, scalars=scalars, part="negative")
    change = pairwise(c, node, "multiply", negative, plus(c, node, slopes, -1.0))
    c.bind(node, pairwise(c, node, "add", x, change))


def _fill_masked(c: Construction, node: Node) -> None:
    _choose(c, node, "mask", "value", "self")


def _where(c: Construction, node: Node) -> None:
    _choose(c, node, "condition", "self", "other")


def _choose(c: Construction, node: Node, mask: str, one: str, other: str) -> None:
    """Bind elements of one operand where the mask is set, of the other elsewhere."""
    known = c.constant_of(node, mask)
    if known is None:
        c.bind(node, _chosen_where(c, node, c.view(node, mask), one, other))
    else:
        c.bind(node, _chosen(c, node, known, one, other))


def _chosen_where(c: Construction, node: Node, shown: View, one: str, other: str) -> View:
    """The same with a mask that is computed, 1 where it is set."""
    terms = []
    for name, chosen in ((one, shown), (other, opposite(c, node, shown))):
        number = c.number(node, name)
        if number is None:
            terms.append(_selected(c, node, c.view(node, name), chosen))
        elif number:
            most = float(np.finfo(np.float32).max)
            terms.append(times(c, node, chosen, max(-most, min(number, most))))
    if len(terms) < 2:
        return c.expanded(terms[0] if terms else times(c, node, shown, 0.0), c.meta(node).shape)
    return pairwise(c, node, "add", *terms)


def _chosen(c: Construction, node: Node, mask: NDArray[Any], one: str, other: str) -> View:
    """Elements of one operand where the mask is set, of the other elsewhere."""
    terms = []
    numbers = np.zeros(mask.shape)
    for name, chosen in ((one, mask), (other, ~mask)):
        number = c.number(node, name)
        if number is None:
            shown = c.new_constant(node, f"shown_{name}", chosen)
            terms.append(_selected(c, node, c.view(node, name), shown))
        else:
            numbers = np.where(chosen, number, numbers)
    if numbers.any():
        terms.append(c.new_constant(node, "numbers", numbers))
    first, *rest = terms
    return pairwise(c, node, "add", first, rest[0]) if rest else first


def _selected(c: Construction, node: Node, view: View, shown: View) -> View:
    """The elements of a tensor where ``shown`` is not 0, and 0 elsewhere.

    A product would make NaN of an infinity, which a mask is there to hide.
    """
    shape = c.meta(node).shape
    view = c.expanded(view, shape)
    if not view.has_all:
        view = View.whole(c.stored(node, view))
    small, sizes = _aligned(c, node, view, c.expanded(shown, shape))
    spec = OpSpec.of("broadcast_select.forward", **sizes)
    return view.of(c.layer(node, spec, (view.value, small), shape=view.value.shape, part="shown"))


def plus(c: Construction, node: Node, view: View, number: float) -> View:
    """Append a sum with a number."""
    if number == 0:
        return view
    return applied(c, node, "add_number.forward", view, scalars={"addend": number}, part="sum")


def times(c: Construction, node: Node, view: View, number: float, part: str = "scaled") -> View:
    """Append a product with a number."""
    if number == 1:
        return view
    scalars = {"factor": number}
    return applied(c, node, "multiply_number.forward", view, scalars=scalars, part=part)


def pairwise(c: Construction, node: Node, family: str, left: View, right: View) -> View:
    """Append the sum or product of two tensors, of which one may be repeated along axes.

    Elements are taken in the order in which the larger tensor is stored.
    """
    shape = c.meta(node).shape
    left, right = c.expanded(left, shape), c.expanded(right, shape)
    if not left.has_all and right.has_all:
        left, right = right, left
    if not left.has_all:
        left = View.whole(c.stored(node, left))
    small, sizes = _aligned(c, node, left, right)
    if small.elements == left.value.elements:
        return elementwise(c, node, f"{family}.forward", left, left.value, small)
    spec = OpSpec.of(f"broadcast_{family}.forward", **sizes)
    output = c.layer(node, spec, (left.value, small), shape=left.value.shape)
    return left.of(output)


def _aligned(c: Construction, node: Node, large: View, other: View) -> tuple[Value, dict[str, int]]:
    """The other tensor in the order in which the large one is stored, and the sizes of both.

    Repetitions are left out if the kinds that broadcast have them.
    """
    order = large.stored_axes
    lengths = [large.shape[axis] for axis in order]
    repeated = [other.strides[axis] == 0 for axis in order]
    sizes = sizes_of(BROADCAST, lengths, repeated)
    if sizes is None:
        every = sizes_of(BROADCAST, lengths, [False] * len(order))
        assert every is not None, "a tensor without repetitions has a form"
        return c.stored(node, other.of_axes(order)), every
    kept = [axis for axis, again in zip(order, repeated, strict=True) if not again]
    return c.stored(node, other.of_axes(kept)), sizes


def _mean(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    count = len(view.shape)
    if count > 2 and set(c.axes(node, "dim", count, ())) == set(range(2, count)):
        global_average_pool(c, node, c.stored(node, view))
    else:
        _reduce(c, node)


def _reduce(c: Construction, node: Node) -> None:
    """Bind sums or means along axes."""
    view = all_of(c, node)
    count = len(view.shape)
    lost = sorted(c.axes(node, "dim", count, tuple(range(count))))
    left = [axis for axis in range(count) if axis not in lost]
    axes = set(lost)
    sizes = _reduced_sizes(view, axes)
    if sizes is None:
        view = View.whole(c.stored(node, view.permuted((*lost, *left))))
        axes, left = set(range(len(lost))), list(range(len(lost), count))
        sizes = _reduced_sizes(view, axes)
        assert sizes is not None, "what is reduced comes first"
    reduced = math.prod(view.shape[axis] for axis in axes)
    factor = 1 / reduced if node.target.startswith("aten.mean") else 1.0
    kept = [axis for axis in view.stored_axes if axis not in axes]
    spec = OpSpec.of("reduce.forward", **sizes)
    shape = tuple(view.shape[axis] for axis in kept)
    result = View.whole(c.layer(node, spec, (view.value,), shape=shape, scalars={"factor": factor}))
    stride = dict(zip(kept, result.strides, strict=True))
    result = replace(
        result,
        shape=tuple(view.shape[axis] for axis in left),
        strides=tuple(stride.get(axis, 0) for axis in left),
    )
    for axis in lost if c.plain(node, "keepdim", False) else ():
        result = result.within(axis)
    c.bind(node, result)


def _reduced_sizes(view: View, axes: set[int]) -> dict[str, int] | None:
    order = view.stored_axes
    return sizes_of(
        BROADCAST, [view.shape[axis] for axis in order], [axis in axes for axis in order]
    )


def _counts_steps(c: Construction, node: Node) -> bool:
    """Take a counter of steps, such as a batch norm's, out of the network: nothing may read it."""
    if c.meta(node).dtype != INT64:
        return False
    counter = c.view(node, "self").value
    if counter.kind != "parameter" or counter.shape != () or node.arguments.get("other") != 1:
        return False
    if _is_used(c, node.reads[0], counter.name):
        raise Unsupported(f"it counts the steps, and the count {counter.name} is read")
    c.counters.append(counter.name)
    c.views[node.outputs[0]] = c.view(node, "self")
    return True


def _is_used(c: Construction, count: str, counter: str) -> bool:
    """Whether a count is read by anything else than the operations that change its counter."""

    def changes(node: Node) -> bool:
        changed = node.reads[0]
        return node.is_in_place and (changed == count or c.program.buffers.get(changed) == counter)

    return count in c.program.outputs or any(
        not changes(node) or any(_is_used(c, name, counter) for name in node.outputs)
        for node in c.readers(count)
        if node.outputs
    )


ARITHMETIC: Mapping[str, Operation] = {
    **dict.fromkeys(("add.Tensor", "add.Scalar"), _add),
    **dict.fromkeys(("sub.Tensor", "sub.Scalar"), _subtract),
    "rsub.Scalar": _reversed_subtract,
    **dict.fromkeys(("mul.Tensor", "mul.Scalar"), _multiply),
    **dict.fromkeys(("div.Tensor", "div.Scalar", "div.Tensor_mode"), _divide),
    "neg.default": _negate,
    "pow.Tensor_Scalar": _power,
    "prelu.default": _prelu,
    **dict.fromkeys(("masked_fill.Scalar", "masked_fill.Tensor"), _fill_masked),
    **dict.fromkeys(("where.self", "where.ScalarOther", "where.ScalarSelf"), _where),
    **dict.fromkeys(("sum.default", "sum.dim_IntList", "mean.default"), _reduce),
    "mean.dim": _mean,
}

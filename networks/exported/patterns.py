"""Compositions that are one operation here: how many networks state an RMS norm and a rotary
embedding.

The operations of which they consist have been appended when the last one of them is found. Nothing
reads them then, and they are left out of the network.
"""

from __future__ import annotations

from devices.operation import OpSpec
from networks.exported.broadcasting import BEFORE_FEATURES, sizes_of
from networks.exported.construction import Construction
from networks.exported.program import Node, Reference
from networks.exported.views import View

_PASSING = frozenset(
    {"aten.to.dtype", "aten.to.dtype_layout", "aten.type_as.default", "aten.alias.default"}
)
_PRODUCTS = frozenset({"aten.mul.Tensor"})


def _operand(node: Node | None, name: str) -> str | None:
    found = node.arguments.get(name) if node is not None else None
    return found.name if isinstance(found, Reference) else None


def _maker(c: Construction, last: Node, name: str | None, targets: frozenset[str]) -> Node | None:
    """The node that made a tensor, if it is one of these operations and none is in place.

    A gradient flows through it if it flows through the composition's last node.
    """
    while name is not None and name not in c.overwritten:
        node = c.maker.get(name)
        if node is None or node.without_gradient != last.without_gradient:
            return None
        if node.target in targets:
            return node
        if node.target not in _PASSING:
            return None
        name = _operand(node, "self")
    return None


def _factors(node: Node) -> list[tuple[str, str]]:
    """Both orders of the operands of a product of tensors."""
    left, right = _operand(node, "self"), _operand(node, "other")
    return [] if left is None or right is None else [(left, right), (right, left)]


# --- RMS norm ---------------------------------------------------------------------------------


def rms_norm(c: Construction, node: Node) -> View | None:
    """An RMS norm (Zhang and Sennrich 2019) whose last operation is the product ``node``.

    That is scale * (x * rsqrt(mean(x ** 2, -1, keepdim) + epsilon)).
    """
    for weight, normed in _factors(node):
        scale = c.views.get(weight)
        product = _maker(c, node, normed, _PRODUCTS)
        if scale is None or product is None or scale.value.kind != "parameter":
            continue
        for source, root in _factors(product):
            epsilon = _root_mean_square(c, node, root, source)
            x = c.views[source] if epsilon is not None else None
            if x is None or epsilon is None or not x.is_row_major:
                continue
            *rows, features = x.shape
            if scale.shape != (features,) or not scale.is_row_major:
                continue
            reads = (c.stored(node, x), scale.value)
            count = x.value.elements // features
            spec = OpSpec.of("rms_norm.forward", rows=count, features=features)
            shape = (*rows, features)
            output = c.layer(node, spec, reads, shape=shape, scalars={"epsilon": epsilon})
            return View.whole(output)
    return None


def _root_mean_square(c: Construction, node: Node, name: str, source: str) -> float | None:
    """Epsilon, if the tensor is 1 / sqrt(mean square of ``source`` + epsilon)."""
    root = _maker(c, node, name, frozenset({"aten.rsqrt.default"}))
    total = _maker(c, node, _operand(root, "self"), frozenset({"aten.add.Tensor"}))
    mean = _maker(c, node, _operand(total, "self"), frozenset({"aten.mean.dim"}))
    square = _maker(
        c, node, _operand(mean, "self"), frozenset({"aten.pow.Tensor_Scalar"}) | _PRODUCTS
    )
    if total is None or mean is None or square is None or source not in c.views:
        return None
    x, squared = c.views[source], _operand(square, "self")
    again = squared if square.target not in _PRODUCTS else _operand(square, "other")
    exponent = 2 if square.target in _PRODUCTS else square.arguments.get("exponent")
    axes = mean.arguments.get("dim")
    same = [c.views.get(each or "") == x for each in (squared, again)]
    if not all(same) or {source, squared, again} & c.overwritten or exponent != 2:
        return None
    if axes not in {(-1,), (len(x.shape) - 1,)} or not mean.arguments.get("keepdim"):
        return None
    return c.number(total, "other") if total.arguments.get("alpha", 1) == 1 else None


# --- rotary embedding -------------------------------------------------------------------------


def rotary(c: Construction, node: Node) -> View | None:
    """A rotary embedding (Su et al. 2021) whose last operation is the sum ``node``.

    That is x * cosine + cat(-second half of x, first half of x) * sine, with constants cosine and
    sine.
    """
    straight = _maker(c, node, _operand(node, "self"), _PRODUCTS)
    turned = _maker(c, node, _operand(node, "other"), _PRODUCTS)
    if straight is None or turned is None:
        return None
    for source, cosine in _factors(straight):
        for halves, sine in _factors(turned):
            known = [c.constant(name) is not None for name in (source, cosine, halves, sine)]
            if known != [False, True, False, True] or source in c.overwritten:
                continue
            x = c.views[source]
            if c.meta(node).shape == x.shape and _is_turned(c, node, halves, x):
                return _rotated(c, node, x, c.named(cosine), c.named(sine))
    return None


def _is_turned(c: Construction, node: Node, name: str, x: View) -> bool:
    """Whether a tensor is the negative second half of x, then its first half."""
    joined = _maker(c, node, name, frozenset({"aten.cat.default"}))
    parts = joined.arguments.get("tensors") if joined is not None else None
    last, half = len(x.shape) - 1, x.shape[-1] // 2 if x.shape else 0
    if joined is None or not isinstance(parts, tuple) or len(parts) != 2 or x.shape[-1] % 2:
        return False
    second, first = (part.name if isinstance(part, Reference) else "" for part in parts)
    negated = _maker(c, node, second, frozenset({"aten.neg.default"}))
    source = _operand(negated, "self")
    return (
        joined.arguments.get("dim") in {-1, last}
        and source is not None
        and not {first, second, source} & c.overwritten
        and c.views.get(source) == x.part(last, half, half)
        and c.views.get(first) == x.part(last, 0, half)
    )


def _rotated(c: Construction, node: Node, x: View, cosine: View, sine: View) -> View | None:
    if not x.has_all:
        x = View.whole(c.stored(node, x))
    *before, last = x.stored_axes
    if last != len(x.shape) - 1 or x.strides[last] != 1:
        return None
    angles = [c.expanded(each, x.shape) for each in (cosine, sine)]
    repeated = [[each.strides[axis] == 0 for axis in before] for each in angles]
    sizes = sizes_of(BEFORE_FEATURES, [x.shape[axis] for axis in before], repeated[0])
    if sizes is None or repeated[0] != repeated[1] or any(not a.strides[last] for a in angles):
        return None
    kept = [axis for axis, again in zip(before, repeated[0], strict=True) if not again]
    small = [c.stored(node, each.of_axes([*kept, last])) for each in angles]
    spec = OpSpec.of("rotary.forward", **{**sizes, "inner": x.shape[last]})
    return x.of(c.layer(node, spec, (x.value, *small), shape=x.value.shape))

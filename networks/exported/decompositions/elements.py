"""Functions of elements that consist of other operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from networks.exported.decompositions.parts import Decomposition, Parts
from networks.exported.program import Reference

_MOST_EXPONENT = 64


def _composed(function: Callable[[Parts, Reference], Reference]) -> Decomposition:
    """A function of the first tensor."""

    def appended(p: Parts) -> None:
        p.end(function(p, p.operand()))

    return appended


def _sign(p: Parts, x: Reference) -> Reference:
    return p.pair("sub", p.compared("gt", x, 0.0), p.compared("lt", x, 0.0))


def _logit(p: Parts, x: Reference) -> Reference:
    if p.has_number("eps"):
        least = p.number("eps", 0.0)
        x = p.of("clamp", x, min=least, max=1 - least)
    return p.pair("sub", p.of("log", x), p.of("log", p.raised(p.of("neg", x), 1.0)))


def _soft_shrink(p: Parts, x: Reference) -> Reference:
    bound = p.number("lambd", 0.5)
    return p.pair("sub", x, p.of("clamp", x, min=-bound, max=bound))


def _hard_shrink(p: Parts, x: Reference) -> Reference:
    return p.pair("mul", x, p.compared("gt", p.of("abs", x), p.number("lambd", 0.5)))


def _threshold(p: Parts, x: Reference) -> Reference:
    hidden = p.compared("le", x, p.number("threshold", 0.0))
    value = p.number("value", 0.0)
    return p.add("masked_fill.Scalar", p.shape(x), self=x, mask=hidden, value=value)


def _randomized_relu(p: Parts) -> None:
    """With fixed slopes: drawn ones are for training."""
    if not p.number("training", 0):
        slope = (p.number("lower", 1 / 8) + p.number("upper", 1 / 3)) / 2
        p.end(p.of("leaky_relu", p.operand(), negative_slope=slope))


# --- powers and roots -------------------------------------------------------------------------


def _power(p: Parts) -> None:
    """Whole powers as products, others as exp(y log x), of numbers that are not negative."""
    x, exponent = p.operand(), p.number("exponent", 1.0)
    size = abs(exponent)
    if exponent in {0.5, -0.5, -1.0, 1.0, 2.0, 3.0} or not 0 < size <= _MOST_EXPONENT:
        return
    if size != int(size):
        if exponent > 1:  # the slope at 0 is 0, that of the logarithm infinite
            x = p.selected(x, x)
        p.end(p.of("exp", p.scaled(p.of("log", x), exponent)))
        return
    left, power, result = int(size), x, None
    while left:
        if left % 2:
            result = power if result is None else p.pair("mul", result, power)
        left //= 2
        power = p.of("square", power) if left else power
    assert result is not None, "the exponent is not 0"
    p.end(p.of("reciprocal", result) if exponent < 0 else result)


def _power_of_number(p: Parts) -> None:
    base = p.number("self", 0.0)
    if base > 0:
        p.end(p.of("exp", p.scaled(p.operand("exponent"), math.log(base))))


def _power_of_tensors(p: Parts) -> None:
    """exp(y log x); no gradient flows through 0 ** y, which is 1 for y = 0 and 0 for y > 0."""
    x, exponent = p.operand(), p.operand("exponent")
    size = p.of("abs", x)
    regular = p.pair("add", size, p.of("relu", p.of("neg", exponent)))
    logarithm = p.selected(p.of("log", p.selected(x, regular)), regular)
    power = p.of("exp", p.pair("mul", exponent, logarithm))
    p.end(p.selected(power, p.pair("add", size, p.compared("le", exponent, 0.0))))


def _interpolated(p: Parts) -> None:
    """self + weight (end - self)."""
    start, weight = p.operand(), p.node.arguments.get("weight")
    apart = p.pair("sub", p.operand("end"), start)
    if isinstance(weight, Reference):
        apart = p.pair("mul", apart, weight)
    else:
        apart = p.scaled(apart, p.number("weight", 0.0))
    p.end(p.pair("add", start, apart))


def _length(p: Parts) -> None:
    squares = (p.of("square", p.operand(name)) for name in ("self", "other"))
    p.end(p.of("sqrt", p.pair("add", *squares)))


def _product_with_logarithm(p: Parts) -> None:
    """x log y, which is 0 for x = 0 and every y that is not positive."""
    x, y = p.operand(), p.operand("other")
    regular = p.pair("add", p.of("abs", x), p.of("relu", y))
    p.end(p.pair("mul", x, p.selected(p.of("log", y), regular)))


# --- the larger and the smaller of two --------------------------------------------------------


def _chosen(comparison: str) -> Decomposition:
    """The operand that is larger or smaller; of equal ones, the other has the gradient."""

    def appended(p: Parts) -> None:
        left, right = p.operand(), p.operand("other")
        is_left = p.pair(comparison, left, right)
        p.end(p.add("where.self", p.result, condition=is_left, self=left, other=right))

    return appended


def _clamped(p: Parts) -> None:
    """Between bounds that are tensors."""
    x = p.operand()
    for name, comparison in (("min", "gt"), ("max", "lt")):
        if p.has(name):
            bound = p.operand(name)
            is_inside = p.pair(comparison, x, bound)
            x = p.add("where.self", p.result, condition=is_inside, self=x, other=bound)
    p.end(x)


def _classes(p: Parts) -> None:
    """1 at the place that a whole number names, 0 at all others."""
    x = p.operand()
    places = p.constant(p.places(p.result[-1]).astype("f4"))
    p.end(p.pair("eq", p.reshaped(x, (*p.shape(x), 1)), places))


# --- what is true of any or all ---------------------------------------------------------------


def _count(p: Parts) -> tuple[Reference, int]:
    """Number of elements along the axes that are not 0, and that of all elements."""
    x = p.operand()
    axes = p.axes("dim", x)
    size = math.prod(p.shape(x)[axis] for axis in axes)
    held = p.compared("ne", x, 0.0)
    return p.total(held, axes, keep=bool(p.number("keepdim", 0))), size


def _any(p: Parts) -> None:
    count, _ = _count(p)
    p.end(p.compared("gt", count, 0.0))


def _all(p: Parts) -> None:
    count, size = _count(p)
    p.end(p.compared("eq", count, float(size)))


_OF_ONE: Mapping[str, Callable[[Parts, Reference], Reference]] = {
    "sign": _sign,
    "log1p": lambda p, x: p.of("log", p.raised(x, 1.0)),
    "expm1": lambda p, x: p.raised(p.of("exp", x), -1.0),
    "log2": lambda p, x: p.scaled(p.of("log", x), 1 / math.log(2)),
    "log10": lambda p, x: p.scaled(p.of("log", x), 1 / math.log(10)),
    "logit": _logit,
    "softshrink": _soft_shrink,
    "hardshrink": _hard_shrink,
    "threshold": _threshold,
}
ELEMENTS: Mapping[str, Decomposition] = {
    **{f"{name}.default": _composed(function) for name, function in _OF_ONE.items()},
    "rrelu.default": _randomized_relu,
    "pow.Tensor_Scalar": _power,
    "pow.Scalar": _power_of_number,
    "pow.Tensor_Tensor": _power_of_tensors,
    **dict.fromkeys(("lerp.Scalar", "lerp.Tensor"), _interpolated),
    "hypot.default": _length,
    "xlogy.Tensor": _product_with_logarithm,
    **dict.fromkeys(("maximum.default", "max.other"), _chosen("gt")),
    **dict.fromkeys(("minimum.default", "min.other"), _chosen("lt")),
    "clamp.Tensor": _clamped,
    "one_hot.default": _classes,
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), _any),
    **dict.fromkeys(("all.default", "all.dim", "all.dims"), _all),
}
"""By ATen's name without ``aten.``."""

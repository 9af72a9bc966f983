"""Losses, distances and logarithms of probabilities that consist of other operations."""

from __future__ import annotations

import math
from collections.abc import Mapping

from networks.exported.decompositions.extremes import largest
from networks.exported.decompositions.functions import norm
from networks.exported.decompositions.parts import Decomposition, Parts
from networks.exported.program import Node, Program, Reference

_NONE, _MEAN, _SUM = 0, 1, 2
"""ATen's numbers of reductions."""
_LEAST_LOGARITHM = -100.0
_LEAST_DIVISOR = 1e-12
_IGNORED_LABEL = -100
BY_ROWS = "by_rows"
"""Argument of a weighted cross-entropy that takes the mean over all rows."""
_LEAST_PROBABILITY = 1e-37


def _reduced(p: Parts, loss: Reference) -> None:
    """End with the mean of the elements of a loss, or their sum, or the loss itself."""
    reduction = int(p.number("reduction", _MEAN))
    target = {_MEAN: "mean.default", _SUM: "sum.default"}.get(reduction)
    p.end(loss if target is None else p.add(target, (), self=loss))


def _takes_mean(p: Parts) -> bool:
    return p.number("reduction", _MEAN) == _MEAN


# --- distances --------------------------------------------------------------------------------


def _mean_squared_error(p: Parts) -> None:
    prediction, target = p.operand(), p.operand("target")
    if _takes_mean(p) and p.is_fixed(target) and p.shape(prediction) == p.shape(target):
        return
    _reduced(p, p.of("square", p.pair("sub", prediction, target)))


def _mean_absolute_error(p: Parts) -> None:
    _reduced(p, p.of("abs", p.pair("sub", p.operand(), p.operand("target"))))


def _huber(p: Parts) -> None:
    """Half the square up to a distance, and a line from there: c (|x| - c / 2), c = min(|x|, d).

    The smooth L1 loss is divided by the distance.
    """
    is_smooth = p.node.target.startswith("aten.smooth_l1_loss")
    distance = p.number("beta" if is_smooth else "delta", 1.0)
    size = p.of("abs", p.pair("sub", p.operand(), p.operand("target")))
    if distance == 0:
        _reduced(p, size)
        return
    near = p.of("clamp", size, min=-1.0, max=distance)
    loss = p.pair("mul", near, p.pair("sub", size, p.scaled(near, 0.5)))
    _reduced(p, p.scaled(loss, 1 / distance) if is_smooth else loss)


def _distance(p: Parts, left: Reference, right: Reference, *, keep: bool = False) -> Reference:
    """Lengths of the differences along the last axis."""
    apart = p.raised(p.pair("sub", left, right), p.number("eps", 1e-6))
    return norm(p, apart, (len(p.shape(apart)) - 1,), keep=keep)


def _pairwise_distance(p: Parts) -> None:
    if p.number("p", 2.0) == 2:
        keep = bool(p.number("keepdim", 0))
        p.end(_distance(p, p.operand("x1"), p.operand("x2"), keep=keep))


def _triplet(p: Parts) -> None:
    """relu(margin + distance to the positive - distance to the negative)."""
    if p.number("p", 2.0) == 2 and not p.number("swap", 0):
        anchor = p.operand("anchor")
        near, far = (_distance(p, anchor, p.operand(name)) for name in ("positive", "negative"))
        apart = p.raised(p.pair("sub", near, far), p.number("margin", 1.0))
        _reduced(p, p.of("relu", apart))


def _cosine_similarity(p: Parts) -> None:
    left, right = p.operand("x1"), p.operand("x2")
    axis, least = p.axis("dim", left, 1), p.number("eps", 1e-8)
    product = p.total(p.pair("mul", left, right), (axis,))
    lengths = (p.of("clamp", norm(p, each, (axis,)), min=least) for each in (left, right))
    p.end(p.pair("div", product, p.pair("mul", *lengths)))


# --- two classes ------------------------------------------------------------------------------


def _binary_cross_entropy(p: Parts) -> None:
    """Of probabilities y, whose logarithms are at least -100.

    The gradient is PyTorch's, (y - target) / (y (1 - y)) with a divisor of at least 1e-12. That of
    the logarithms, which is infinite where y is 0 or 1, is stopped; a term that is always 0, the
    gradient times y - y with the second y stopped, takes its place.
    """
    y, target = p.operand(), p.operand("target")
    fixed = p.of("detach", y)
    rest = p.raised(p.of("neg", fixed), 1.0)
    yes, no = (p.of("clamp", p.of("log", each), min=_LEAST_LOGARITHM) for each in (fixed, rest))
    terms = p.pair("mul", target, p.pair("sub", yes, no))
    loss = p.of("neg", p.pair("add", no, terms))
    if not p.is_fixed(y):
        divisor = p.of("clamp", p.pair("mul", fixed, rest), min=_LEAST_DIVISOR)
        slope = p.pair("div", p.pair("sub", fixed, p.of("detach", target)), divisor)
        loss = p.pair("add", loss, p.pair("mul", p.pair("sub", y, fixed), slope))
    _reduced(p, p.pair("mul", loss, p.operand("weight")) if p.has("weight") else loss)


def _binary_cross_entropy_with_logits(p: Parts) -> None:
    """(1 - z) x + (1 + (w - 1) z) softplus(-x), where w weights what is true."""
    x, z = p.operand(), p.operand("target")
    is_plain = not (p.has("weight") or p.has("pos_weight"))
    if is_plain and _takes_mean(p) and p.is_fixed(z) and p.shape(x) == p.shape(z):
        return
    soft = p.of("softplus", p.of("neg", x))
    if p.has("pos_weight"):
        more = p.pair("mul", z, p.raised(p.operand("pos_weight"), -1.0))
        soft = p.pair("mul", soft, p.raised(more, 1.0))
    loss = p.pair("add", p.pair("mul", x, p.raised(p.of("neg", z), 1.0)), soft)
    _reduced(p, p.pair("mul", loss, p.operand("weight")) if p.has("weight") else loss)


# --- several classes --------------------------------------------------------------------------


def _log_probabilities(p: Parts, x: Reference, axis: int) -> Reference:
    """x - m - log(sum(exp(x - m))) along an axis, where no gradient flows through the maximum m."""
    lower = p.pair("sub", x, p.of("detach", largest(p, x, (axis,), keep=True)))
    return p.pair("sub", lower, p.of("log", p.total(p.of("exp", lower), (axis,), keep=True)))


def _log_softmax(p: Parts) -> None:
    x = p.operand()
    p.end(_log_probabilities(p, x, p.axis("dim", x, -1)))


def is_before_likelihood(node: Node, program: Program) -> bool:
    """Whether only a negative log-likelihood of the classes reads a ``log_softmax``."""
    (name,) = node.outputs
    count = len(program.tensors[name].shape)
    axis = node.arguments.get("dim")
    readers = [each for each in program.nodes if name in each.reads]
    return (
        isinstance(axis, int)
        and axis % count == (1 if count > 1 else 0)
        and name not in program.outputs
        and all(
            each.target == "aten.nll_loss_nd.default" and each.arguments.get("reduction") != _NONE
            for each in readers
        )
    )


def _cross_entropy(p: Parts) -> None:
    """With smoothed labels, with probabilities as the target, or a sum over rows.

    Weights of classes and labels that are ignored belong to one operation, but in a loss of each
    row. Labels that are computed may be ignored.
    """
    x, target = p.operand(), p.operand("target")
    smoothing, shape = p.number("label_smoothing", 0.0), p.shape(x)
    reduction = p.number("reduction", _MEAN)
    has_labels = not p.is_float(target)
    is_weighted = p.has("weight") or p.number("ignore_index", _IGNORED_LABEL) != _IGNORED_LABEL
    is_whole = is_weighted or not smoothing or not p.is_input(target)
    if has_labels and is_whole and reduction != _NONE:
        _sum_of_rows(p)
        return
    axis = 1 if len(shape) > 1 else 0
    logarithms = _log_probabilities(p, x, axis)
    if reduction == _NONE:
        _of_each_row(p, logarithms, axis)
        return
    classes = shape[axis]
    rows = math.prod(shape) // classes
    total = 1.0 if reduction == _SUM else 1 / rows
    if has_labels:
        loss = p.add("cross_entropy_loss.default", (), self=x, target=target)
        loss = p.scaled(loss, (1 - smoothing) * rows * total)
    else:
        if p.has("weight"):
            across = (shape[axis], *(1 for _ in shape[axis + 1 :]))
            weights = p.reshaped(p.operand("weight"), across)
            logarithms = p.pair("mul", logarithms, weights)
        each = p.pair("mul", logarithms, target)
        loss = p.scaled(p.add("sum.default", (), self=each), -(1 - smoothing) * total)
    if smoothing:
        every = p.add("sum.default", (), self=logarithms)
        loss = p.pair("add", loss, p.scaled(every, -smoothing * total / classes))
    p.end(loss)


def _of_each_row(p: Parts, logarithms: Reference, axis: int) -> None:
    """Loss of each row: minus the sum of logarithm times share in the target over the classes."""
    target, shape = p.operand("target"), p.shape(logarithms)
    classes, smoothing = shape[axis], p.number("label_smoothing", 0.0)
    across = (classes, *(1 for _ in shape[axis + 1 :]))
    shares, ignored = target, None
    if not p.is_float(target):
        ignored = p.number("ignore_index", _IGNORED_LABEL)
        apart = p.reshaped(target, (*shape[:axis], 1, *shape[axis + 1 :]))
        shares = p.pair("eq", apart, p.constant(p.places(classes).astype("f4").reshape(across)))
        if not smoothing:  # other classes may have the probability 0
            logarithms = p.add(
                "where.ScalarOther", shape, condition=shares, self=logarithms, other=0.0
            )
    if smoothing:
        shares = p.raised(p.scaled(shares, 1 - smoothing), smoothing / classes)
    if p.has("weight"):
        shares = p.pair("mul", shares, p.reshaped(p.operand("weight"), across))
    loss = p.of("neg", p.total(p.pair("mul", logarithms, shares), (axis,)))
    if ignored is not None and (smoothing or 0 <= ignored < classes):
        loss = p.pair("mul", loss, p.add("ne.Scalar", p.shape(target), self=target, other=ignored))
    p.end(loss)


def _likelihood(p: Parts) -> None:
    if p.number("reduction", _MEAN) == _NONE:
        x = p.operand()
        _of_each_row(p, x, 1 if len(p.shape(x)) > 1 else 0)
    else:
        _sum_of_rows(p)


def _sum_of_rows(p: Parts) -> None:
    """A sum over rows as a mean over all of them, times their number."""
    shape = p.shape(p.operand())
    if p.number("reduction", _MEAN) == _SUM:
        given = {**p.node.arguments, "reduction": _MEAN, BY_ROWS: True}
        mean = p.add(p.node.target.removeprefix("aten."), (), **given)
        p.end(p.scaled(mean, math.prod(shape) / shape[1 if len(shape) > 1 else 0]))


def _divergence(p: Parts) -> None:
    """target (log target - input), or exp(target) (target - input) if it is a logarithm."""
    logarithms, target = p.operand(), p.operand("target")
    if p.number("log_target", 0):
        loss = p.pair("mul", p.of("exp", target), p.pair("sub", target, logarithms))
    else:
        of_target = p.of("log", p.of("clamp", target, min=_LEAST_PROBABILITY))
        loss = p.pair("mul", target, p.pair("sub", of_target, logarithms))
    _reduced(p, loss)


LOSSES: Mapping[str, Decomposition] = {
    "mse_loss.default": _mean_squared_error,
    "l1_loss.default": _mean_absolute_error,
    **dict.fromkeys(("smooth_l1_loss.default", "huber_loss.default"), _huber),
    "pairwise_distance.default": _pairwise_distance,
    "triplet_margin_loss.default": _triplet,
    "cosine_similarity.default": _cosine_similarity,
    "binary_cross_entropy.default": _binary_cross_entropy,
    "binary_cross_entropy_with_logits.default": _binary_cross_entropy_with_logits,
    "log_softmax.int": _log_softmax,
    "cross_entropy_loss.default": _cross_entropy,
    "nll_loss_nd.default": _likelihood,
    "kl_div.default": _divergence,
}
"""By ATen's name without ``aten.``."""

"""Activations, norms of vectors, pooling and rearrangements that consist of other operations."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from networks.exported.decompositions.parts import Decomposition, Parts, Shape
from networks.exported.decompositions.places import PADDING, padded_with_elements
from networks.exported.program import Argument, Reference

_SELU = 1.6732632423543772, 1.0507009873554805
"""Alpha and scale (Klambauer et al. 2017), as PyTorch has them."""


def _scaled_elu(p: Parts) -> None:
    alpha, scale = _SELU
    p.end(p.scaled(p.of("elu", p.operand(), alpha=alpha), scale))


def _continuous_elu(p: Parts) -> None:
    """alpha * elu(x / alpha)."""
    alpha = p.number("alpha", 1.0)
    if alpha > 0:
        p.end(p.scaled(p.of("elu", p.scaled(p.operand(), 1 / alpha)), alpha))


def _log_sigmoid(p: Parts) -> None:
    p.end(p.of("neg", p.of("softplus", p.of("neg", p.operand()))))


def _softplus(p: Parts) -> None:
    """softplus(beta * x) / beta, if beta is not 1."""
    beta = p.number("beta", 1.0)
    if beta not in {0.0, 1.0} and p.number("threshold", 20.0) == 20:
        p.end(p.scaled(p.of("softplus", p.scaled(p.operand(), beta)), 1 / beta))


def _gated_linear_unit(p: Parts) -> None:
    x = p.operand()
    axis = p.axis("dim", x, -1)
    size = p.shape(x)[axis]
    gate = p.of("sigmoid", p.slice(x, axis, size // 2, size))
    p.end(p.pair("mul", p.slice(x, axis, 0, size // 2), gate))


def _sum_with(name: str) -> Decomposition:
    """self + value * tensor1 (times or by) tensor2."""

    def appended(p: Parts) -> None:
        term = p.pair(name, p.operand("tensor1"), p.operand("tensor2"))
        p.end(p.pair("add", p.operand(), p.scaled(term, p.number("value", 1.0))))

    return appended


def _root(p: Parts, x: Reference) -> Reference:
    """Append square roots, where no gradient flows through a root of 0."""
    return p.of("sqrt", p.selected(x, x))


def norm(p: Parts, x: Reference, axes: Shape, *, keep: bool = False) -> Reference:
    """Append the lengths of vectors; no gradient flows through a length of 0."""
    return _root(p, p.total(p.of("square", x), axes, keep=keep))


def _vector_norm(p: Parts) -> None:
    x, order = p.operand(), p.number("ord" if "ord" in p.node.arguments else "p", 2.0)
    axes, keep = p.axes("dim", x), bool(p.number("keepdim", 0))
    if order == 2:
        p.end(norm(p, x, axes, keep=keep))
    elif order == 1:
        p.end(p.total(p.of("abs", x), axes, keep=keep))


def _variance(p: Parts) -> None:
    """Mean of squared deviations, or its root; the divisor is smaller by ``correction``."""
    x = p.operand()
    axes, keep = p.axes("dim", x), bool(p.number("keepdim", 0))
    count = math.prod(p.shape(x)[axis] for axis in axes)
    correction = p.number("correction", p.number("unbiased", 1.0))
    if count <= correction:
        return
    mean = p.total(x, axes, mean=True, keep=True)
    apart = p.pair("sub", x, mean)
    found = p.scaled(p.total(p.of("square", apart), axes, keep=keep), 1 / (count - correction))
    if len(p.node.outputs) > 1:
        p.end(mean if keep else p.reshaped(mean, p.shape(found)), output=1)
    p.end(_root(p, found) if p.node.target.startswith("aten.std") else found)


def _expanded_as(p: Parts) -> None:
    p.end(p.add("expand.default", p.result, self=p.operand(), size=p.result))


def _shaped_as(p: Parts) -> None:
    p.end(p.reshaped(p.operand(), p.result))


def _pixel_shuffle(p: Parts) -> None:
    """Channels become pixels."""
    x, factor = p.operand(), int(p.number("upscale_factor", 1))
    *batch, channels, height, width = p.shape(x)
    apart = p.reshaped(x, (math.prod(batch), channels // factor**2, factor, factor, height, width))
    p.end(p.reshaped(p.permuted(apart, (0, 1, 4, 2, 5, 3)), p.result))


def _pixel_unshuffle(p: Parts) -> None:
    """Pixels become channels."""
    x, factor = p.operand(), int(p.number("downscale_factor", 1))
    *batch, channels, height, width = p.shape(x)
    apart = p.reshaped(
        x, (math.prod(batch), channels, height // factor, factor, width // factor, factor)
    )
    p.end(p.reshaped(p.permuted(apart, (0, 1, 3, 5, 2, 4)), p.result))


def _channel_shuffle(p: Parts) -> None:
    x, groups = p.operand(), int(p.number("groups", 1))
    batch, channels, *plane = p.shape(x)
    apart = p.reshaped(x, (batch, groups, channels // groups, *plane))
    order = (0, 2, 1, *range(3, 3 + len(plane)))
    p.end(p.reshaped(p.permuted(apart, order), p.result))


def _instance_norm(p: Parts) -> None:
    """A group norm of which each channel is a group."""
    x = p.operand("input")
    if p.number("use_input_stats", 1) and not p.has("running_mean"):
        given: dict[str, Argument] = {
            name: p.operand(name) for name in ("weight", "bias") if p.has(name)
        }
        sizes: dict[str, Argument] = {"num_groups": p.shape(x)[1], "eps": p.number("eps", 1e-5)}
        p.end(p.add("group_norm.default", p.result, input=x, **sizes, **given))


def _weight_norm(p: Parts) -> None:
    """Directions v, and lengths g along one axis, or one of all for the axis -1: v g / |v|."""
    v, g = p.operand("v"), p.operand("g")
    axis = -1 if p.number("dim", 0) == -1 else p.axis("dim", v, 0)
    others = tuple(each for each in range(len(p.shape(v))) if each != axis)
    p.end(p.pair("mul", v, p.pair("div", g, norm(p, v, others, keep=True))))


def _attention(p: Parts) -> None:
    """Attention with a trained mask, which needs a gradient; any other one is one operation."""
    if not p.has("attn_mask") or p.is_fixed(p.operand("attn_mask")):
        return
    query, key, value = (p.operand(name) for name in ("query", "key", "value"))
    *batch, features = p.shape(query)
    count = len(p.shape(key))
    is_plain = not any(p.number(name, 0) for name in ("dropout_p", "is_causal", "enable_gqa"))
    if not is_plain or p.shape(query)[:-2] != p.shape(key)[:-2]:
        return
    turned = p.permuted(key, (*range(count - 2), count - 1, count - 2))
    shape = (*batch, p.shape(key)[-2])
    scores = p.scaled(
        p.add("matmul.default", shape, self=query, other=turned),
        p.number("scale", features**-0.5),
    )
    masked = p.pair("add", scores, p.operand("attn_mask"))
    weights = p.add("softmax.int", shape, self=masked, dim=len(shape) - 1)
    p.end(p.add("matmul.default", p.result, self=weights, other=value))


def _exchanged(p: Parts) -> None:
    x = p.operand()
    order = list(range(len(p.shape(x))))
    first, second = p.axis("axis0", x, 0), p.axis("axis1", x, 0)
    order[first], order[second] = order[second], order[first]
    p.end(p.permuted(x, order))


def _rolled(p: Parts) -> None:
    """Elements that leave one end of an axis enter at the other."""
    x, shifts = p.operand(), p.node.arguments.get("shifts")
    if not p.node.arguments.get("dims"):
        return
    axes = p.axes("dims", x)
    steps = shifts if isinstance(shifts, tuple) else (shifts,)
    for axis, step in zip(axes, steps, strict=True):
        size = p.shape(x)[axis]
        first = int(step) % size if isinstance(step, int) else 0
        if first:
            ends = p.slice(x, axis, size - first, size), p.slice(x, axis, 0, size - first)
            x = p.add("cat.default", p.shape(x), tensors=ends, dim=axis)
    p.end(x)


def _average_pool(p: Parts) -> None:
    """Means of what is inside: those with padding, divided by the share that is inside."""
    arguments = p.node.arguments
    counts_padding = arguments.get("count_include_pad", True)
    padding = arguments.get("padding")
    if counts_padding or not padding or arguments.get("ceil_mode"):
        return
    x = p.operand()
    kernel, stride, pads = (
        _both(arguments.get(name) or arguments["kernel_size"])
        for name in ("kernel_size", "stride", "padding")
    )
    inside = [
        _inside(before, after, *each)
        for before, after, *each in zip(
            p.shape(x)[-2:], p.result[-2:], kernel, stride, pads, strict=True
        )
    ]
    factors = math.prod(kernel) / np.multiply.outer(*inside)
    kept = {name: value for name, value in arguments.items() if name != "count_include_pad"}
    means = p.add("avg_pool2d.default", p.result, **{**kept, "count_include_pad": True})
    p.end(p.pair("mul", means, p.constant(factors.astype(np.float32))))


def _in_rows(target: str, *windows: str) -> Decomposition:
    """An operation along one axis as one on images of height 1; ``windows`` are its sizes."""

    def widened(p: Parts) -> None:
        x = p.operand("input" if "input" in p.node.arguments else "self")
        if len(p.shape(x)) != 3 or len(p.result) != 3:
            return
        heights = {"padding": 0, "output_size": 1}
        given = {
            name: (heights.get(name, 1), *_both(value)[:1])
            for name, value in p.node.arguments.items()
            if name in windows and _both(value)
        }
        kept = {
            name: value
            for name, value in p.node.arguments.items()
            if name not in {"input", "self", *windows}
        }
        (batch, channels, length), (_, _, after) = p.shape(x), p.result
        image = p.reshaped(x, (batch, channels, 1, length))
        shape = (batch, channels, 1, after)
        p.end(p.reshaped(p.add(target, shape, self=image, **given, **kept), p.result))

    return widened


def _both(stated: object) -> list[int]:
    """Sizes along both axes, of which one may stand for both."""
    sizes = [each for each in stated if isinstance(each, int)] if isinstance(stated, tuple) else []
    sizes = [stated] if isinstance(stated, int) else sizes
    return sizes * 2 if len(sizes) == 1 else sizes


def _inside(before: int, after: int, kernel: int, stride: int, pad: int) -> NDArray[np.int64]:
    """Number of elements inside of each window along an axis."""
    starts = np.arange(after) * stride - pad
    ends = np.minimum(starts + kernel, before)
    found: NDArray[np.int64] = np.maximum(ends - np.maximum(starts, 0), 1)
    return found


def _pad(p: Parts) -> None:
    """Padding with other numbers than zeros, or with the tensor's own elements."""
    mode = p.node.arguments.get("mode", "constant")
    if mode in PADDING:
        p.end(padded_with_elements(p, str(mode), "pad"))
        return
    x, stated, value = p.operand(), p.node.arguments.get("pad"), p.number("value", 0.0)
    sides = [each for each in stated if isinstance(each, int)] if isinstance(stated, tuple) else []
    if value == 0 or min(sides, default=-1) < 0 or mode != "constant":
        return
    count = len(p.shape(x))
    for number, size in enumerate(sides):
        axis, shape = count - 1 - number // 2, list(p.shape(x))
        if size:
            shape[axis] = size
            beside = p.constant(np.broadcast_to(np.float32(value), tuple(shape)))
            whole = list(p.shape(x))
            whole[axis] += size
            order = (x, beside) if number % 2 else (beside, x)
            x = p.add("cat.default", tuple(whole), tensors=order, dim=axis)
    p.end(x)


FUNCTIONS: Mapping[str, Decomposition] = {
    "selu.default": _scaled_elu,
    "celu.default": _continuous_elu,
    "log_sigmoid.default": _log_sigmoid,
    "softplus.default": _softplus,
    "glu.default": _gated_linear_unit,
    "addcmul.default": _sum_with("mul"),
    "addcdiv.default": _sum_with("div"),
    **dict.fromkeys(
        ("linalg_vector_norm.default", "norm.ScalarOpt_dim", "norm.Scalar"), _vector_norm
    ),
    **{
        f"{name}.{overload}": _variance
        for name in ("var", "std", "var_mean", "std_mean")
        for overload in ("default", "dim", "correction")
    },
    "expand_as.default": _expanded_as,
    **dict.fromkeys(("reshape_as.default", "view_as.default"), _shaped_as),
    "pixel_shuffle.default": _pixel_shuffle,
    "pixel_unshuffle.default": _pixel_unshuffle,
    "channel_shuffle.default": _channel_shuffle,
    "instance_norm.default": _instance_norm,
    "_weight_norm.default": _weight_norm,
    **dict.fromkeys(("pad.default", "constant_pad_nd.default"), _pad),
    "roll.default": _rolled,
    "swapaxes.default": _exchanged,
    "scaled_dot_product_attention.default": _attention,
    "avg_pool2d.default": _average_pool,
    "avg_pool1d.default": _in_rows("avg_pool2d.default", "kernel_size", "stride", "padding"),
    "max_pool1d.default": _in_rows(
        "max_pool2d.default", "kernel_size", "stride", "padding", "dilation"
    ),
    "adaptive_avg_pool1d.default": _in_rows("adaptive_avg_pool2d.default", "output_size"),
}
"""By ATen's name without ``aten.``."""

"""Convolutions, pooling and upsampling."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from devices.operation import OpSpec
from networks.exported.construction import (
    Construction,
    Operation,
    Unsupported,
    copied_elements,
)
from networks.exported.operations.products import matmul
from networks.exported.program import Node
from networks.exported.views import View
from networks.training.network import Value


def _conv(c: Construction, node: Node) -> None:
    x, weight, zeros_before, zeros_after = _unpadded(c, node)
    axes = len(x.shape) - 2
    if axes not in {1, 2}:
        raise Unsupported(f"its input has shape {x.shape}; a batch of 1-D or 2-D images is needed")
    ones = (1,) * axes
    kernel, stride = weight.shape[2:], c.integers(node, "stride", ones)
    dilation = c.integers(node, "dilation", ones)
    if not len(kernel) == len(stride) == len(dilation) == len(zeros_before) == axes:
        raise Unsupported(f"its weight has shape {weight.shape}, its input {x.shape}")
    padding = node.arguments.get("padding")
    if padding == "same":
        whole = tuple((size - 1) * step for size, step in zip(kernel, dilation, strict=True))
        before = tuple(zeros // 2 for zeros in whole)
        after = tuple(zeros - b for zeros, b in zip(whole, before, strict=True))
    else:
        before = (0,) * axes if padding == "valid" else c.integers(node, "padding", (0,) * axes)
        after = before
    if len(before) != axes:
        raise Unsupported(f"padding is {before}")
    bias = c.optional_parameter(node, "bias")
    is_dilated = any(step > 1 for step in dilation)
    spec = OpSpec.of(
        "dilated_conv2d.forward" if is_dilated else "conv2d.forward",
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=weight.shape[0],
        groups=c.plain(node, "groups", 1),
        bias=len(bias),
        **_window(
            x.shape[2:], kernel, stride, _sum(before, zeros_before), _sum(after, zeros_after)
        ),
        **(_dilation(dilation) if is_dilated else {}),
    )
    output = c.layer(node, spec, (x, weight, *bias), shape=c.meta(node).shape)
    c.bind(node, View.whole(output))


def _dilation(dilation: tuple[int, ...]) -> dict[str, int]:
    """Attributes of a dilation; with one axis, images have height 1."""
    height, width = dilation if len(dilation) == 2 else (1, *dilation)
    return {"dilation_height": height, "dilation_width": width}


def _sum(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def _unpadded(c: Construction, node: Node) -> tuple[Value, Value, tuple[int, ...], tuple[int, ...]]:
    """The input and the weight of a convolution, and zeros that the input has at its sides."""
    weight = c.value(node, "weight")
    padded = c.padded.get(node.reads[0])
    if padded is None:
        x = c.value(node, "input")
        none = (0,) * (len(x.shape) - 2)
        return x, weight, none, none
    view, before, after = padded
    return c.stored(node, view), weight, before, after


_PADDED_CONVOLUTIONS = {
    f"aten.conv{axes}d.{overload}" for axes in (1, 2) for overload in ("default", "padding")
}


def _pad(c: Construction, node: Node) -> None:
    """Zeros at the sides of a tensor, or parts of it cut off."""
    if node.arguments.get("mode", "constant") != "constant" or c.plain(node, "value", 0.0) != 0:
        raise Unsupported("it pads with other numbers than zeros", "zeros")
    view = c.view(node, "self")
    sides = c.integers(node, "pad", ())
    before, after = sides[::2][::-1], sides[1::2][::-1]  # from the last axis to the first
    if len(sides) % 2 or len(before) > len(view.shape):
        raise Unsupported(f"pad is {sides} of a tensor with {len(view.shape)} axes")
    first = len(view.shape) - len(before)
    for axis, (front, back) in enumerate(zip(before, after, strict=True), start=first):
        front, back = min(front, 0), min(back, 0)
        view = view.part(axis, -front, view.shape[axis] + front + back)
    before, after = (tuple(max(0, side) for side in each) for each in (before, after))
    grown = _sum(view.shape[first:], _sum(before, after))
    output = (*view.shape[:first], *grown)
    if view.shape == output:
        c.bind(node, view)
    elif first == 2 and _only_convolutions_read(c, node):
        c.padded[node.outputs[0]] = (view, before, after)
        c.bind(node, View.whole(Value(node.outputs[0], output, "activation")))
    else:
        inner = View.whole(Value("", output, "activation"))
        for axis, front in enumerate(before, start=first):
            inner = inner.part(axis, front, view.shape[axis])
        spec = OpSpec.of("pad.forward", **copied_elements(inner))
        padded = c.layer(node, spec, (c.stored(node, view),), shape=output)
        c.bind(node, View.whole(padded))


def _only_convolutions_read(c: Construction, node: Node) -> bool:
    name = node.outputs[0]
    return name not in c.program.outputs and all(
        reader.target in _PADDED_CONVOLUTIONS and reader.reads[0] == name
        for reader in c.readers(name)
    )


def _conv_transpose(c: Construction, node: Node) -> None:
    x, weight = _image(c, node, "input"), c.value(node, "weight")
    c.require(node, dilation=1)
    stride = c.integers(node, "stride", (1, 1))
    padding = c.integers(node, "padding", (0, 0))
    output = c.meta(node).shape
    bias = c.optional_parameter(node, "bias")
    spec = OpSpec.of(
        "conv_transpose2d.forward",
        batch=x.shape[0],
        in_channels=x.shape[1],
        in_height=x.shape[2],
        in_width=x.shape[3],
        out_channels=output[1],
        out_height=output[2],
        out_width=output[3],
        kernel_height=weight.shape[2],
        kernel_width=weight.shape[3],
        stride_height=stride[0],
        stride_width=stride[1],
        pad_top=padding[0],
        pad_left=padding[1],
        groups=c.plain(node, "groups", 1),
        bias=len(bias),
    )
    c.bind(node, View.whole(c.layer(node, spec, (x, weight, *bias), shape=output)))


def _upsample_nearest(c: Construction, node: Node) -> None:
    x, output = _image(c, node, "input"), c.meta(node).shape
    factors = [after / before for after, before in zip(output[2:], x.shape[2:], strict=True)]
    stated = node.arguments.get("scale_factors") or tuple(factors)
    if stated != tuple(factors) or any(factor % 1 for factor in factors):
        why = f"it goes from {x.shape[2:]} to {output[2:]} by {stated}"
        raise Unsupported(why, "a whole factor, or sizes")
    spec = OpSpec.of(
        "upsample_nearest2d.forward",
        batch=x.shape[0],
        channels=x.shape[1],
        in_height=x.shape[2],
        in_width=x.shape[3],
        factor_height=output[2] // x.shape[2],
        factor_width=output[3] // x.shape[3],
    )
    c.bind(node, View.whole(c.layer(node, spec, (x,), shape=output)))


def _upsample_bilinear(c: Construction, node: Node) -> None:
    x, output = _image(c, node, "input"), c.meta(node).shape
    align = c.plain(node, "align_corners", False)
    scales = node.arguments.get("scale_factors")
    factors = scales if isinstance(scales, tuple) else (None, None)
    distances = [
        _distance(before, after, factor, align)
        for before, after, factor in zip(x.shape[2:], output[2:], factors, strict=True)
    ]
    spec = OpSpec.of(
        "upsample_bilinear2d.forward",
        batch=x.shape[0],
        channels=x.shape[1],
        in_height=x.shape[2],
        in_width=x.shape[3],
        out_height=output[2],
        out_width=output[3],
        align_corners=int(align),
    )
    scalars = dict(zip(("row_distance", "column_distance"), distances, strict=True))
    c.bind(node, View.whole(c.layer(node, spec, (x,), shape=output, scalars=scalars)))


def _upsample_bicubic(c: Construction, node: Node) -> None:
    """Products with constant matrices along both axes, of which each row has four weights."""
    x, output = _image(c, node, "input"), c.meta(node).shape
    align = c.plain(node, "align_corners", False)
    scales = node.arguments.get("scale_factors")
    factors = scales if isinstance(scales, tuple) else (None, None)
    below, across = (
        c.new_constant(
            node,
            f"weights_{axis}",
            _cubic(before, after, _distance(before, after, factor, align), align),
        )
        for axis, before, after, factor in zip(
            ("height", "width"), x.shape[2:], output[2:], factors, strict=True
        )
    )
    rows = matmul(c, node, View.whole(x), across.permuted((1, 0)), part="across")
    c.bind(node, matmul(c, node, below, rows))


def _cubic(before: int, after: int, distance: float, align: bool) -> NDArray[np.float64]:
    """Matrix of shape [after, before] of cubic convolution (Keys 1981) with a = -0.75."""
    a = -0.75
    places = np.arange(after) * distance if align else (np.arange(after) + 0.5) * distance - 0.5
    first = np.floor(places)
    matrix = np.zeros((after, before))
    for tap in range(-1, 3):
        x = np.abs(places - (first + tap))
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        columns = np.clip(first + tap, 0, before - 1).astype(int)
        np.add.at(matrix, (np.arange(after), columns), np.where(x <= 1, near, far))
    return matrix


def _distance(before: int, after: int, factor: object, align: bool) -> float:
    """Distance of two outputs in elements of the input, as ATen computes it."""
    if align:
        return (before - 1) / (after - 1) if after > 1 else 0.0
    return 1 / factor if isinstance(factor, float) and factor > 0 else before / after


def _max_pool(c: Construction, node: Node) -> None:
    c.require(node, dilation=1)
    _pool(c, node, "max_pool2d", may_round_up=True)


def _average_pool(c: Construction, node: Node) -> None:
    if any(c.integers(node, "padding", (0,))):
        c.require(node, count_include_pad=True)
    if node.arguments.get("divisor_override") is not None:
        raise Unsupported("divisor_override is given")
    _pool(c, node, "average_pool2d", may_round_up=False)


def _pool(c: Construction, node: Node, family: str, *, may_round_up: bool) -> None:
    x = _image(c, node)
    kernel = c.integers(node, "kernel_size", (1, 1))
    stride, before = c.integers(node, "stride", kernel), c.integers(node, "padding", (0, 0))
    after = before
    if c.plain(node, "ceil_mode", False):
        out = c.meta(node).shape[2:]
        needed = tuple(
            (positions - 1) * step + size - length - pad
            for positions, step, size, length, pad in zip(
                out, stride, kernel, x.shape[2:], before, strict=True
            )
        )
        after = tuple(max(pad, need) for pad, need in zip(before, needed, strict=True))
        if after != before and not may_round_up:
            raise Unsupported("ceil_mode makes windows reach beyond the image")
    _append_pool(c, node, family, x, kernel, stride, before, after)


def _append_pool(
    c: Construction,
    node: Node,
    family: str,
    x: Value,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> None:
    spec = OpSpec.of(
        f"{family}.forward",
        batch=x.shape[0],
        channels=x.shape[1],
        **_window(x.shape[2:], kernel, stride, before, after),
    )
    output = c.layer(node, spec, (x,), shape=c.meta(node).shape)
    c.bind(node, View.whole(output))


def _adaptive_average_pool(c: Construction, node: Node) -> None:
    x, out = _image(c, node), c.meta(node).shape[2:]
    if out == (1, 1):
        global_average_pool(c, node, x)
    elif out == x.shape[2:]:
        c.bind(node, View.whole(x))
    elif any(size % positions for size, positions in zip(x.shape[2:], out, strict=True)):
        _pool_unequal(c, node, x, out)
    else:
        kernel = tuple(size // positions for size, positions in zip(x.shape[2:], out, strict=True))
        _append_pool(c, node, "average_pool2d", x, kernel, kernel, (0, 0), (0, 0))


def _pool_unequal(c: Construction, node: Node, x: Value, out: tuple[int, ...]) -> None:
    """Means of windows of several sizes, as products with constant matrices along both axes."""
    below, across = (
        c.new_constant(node, f"means_{axis}", _means(before, after))
        for axis, before, after in zip(("height", "width"), x.shape[2:], out, strict=True)
    )
    rows = matmul(c, node, View.whole(x), across.permuted((1, 0)), part="across")
    c.bind(node, matmul(c, node, below, rows))


def _means(before: int, after: int) -> NDArray[np.float64]:
    """Matrix of shape [after, before] that takes means as PyTorch's adaptive pooling does."""
    matrix = np.zeros((after, before))
    for position, row in enumerate(matrix):
        first, end = position * before // after, -(-(position + 1) * before // after)
        row[first:end] = 1 / (end - first)
    return matrix


def global_average_pool(c: Construction, node: Node, x: Value) -> None:
    """Bind the means of all axes after the second."""
    batch, channels, *plane = x.shape
    spec = OpSpec.of(
        "global_average_pool.forward", batch=batch, channels=channels, plane=math.prod(plane)
    )
    output = c.layer(node, spec, (x,), shape=c.meta(node).shape)
    c.bind(node, View.whole(output))


def _image(c: Construction, node: Node, name: str = "self") -> Value:
    x = c.value(node, name)
    if len(x.shape) != 4:
        raise Unsupported(f"its input has shape {x.shape}; a batch of images has 4 axes")
    return x


def _window(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> dict[str, int]:
    """Attributes of a sliding window; with one axis, images of height 1."""
    if len(size) == 1:
        size, kernel, stride = (1, *size), (1, *kernel), (1, *stride)
        before, after = (0, *before), (0, *after)
    return {
        "in_height": size[0],
        "in_width": size[1],
        "kernel_height": kernel[0],
        "kernel_width": kernel[1],
        "stride_height": stride[0],
        "stride_width": stride[1],
        "pad_top": before[0],
        "pad_bottom": after[0],
        "pad_left": before[1],
        "pad_right": after[1],
    }


WINDOWS: Mapping[str, Operation] = {
    **dict.fromkeys(
        ("conv1d.default", "conv1d.padding", "conv2d.default", "conv2d.padding"), _conv
    ),
    **dict.fromkeys(("pad.default", "constant_pad_nd.default"), _pad),
    "conv_transpose2d.input": _conv_transpose,
    "max_pool2d.default": _max_pool,
    "avg_pool2d.default": _average_pool,
    "adaptive_avg_pool2d.default": _adaptive_average_pool,
    "upsample_nearest2d.vec": _upsample_nearest,
    "upsample_bilinear2d.vec": _upsample_bilinear,
    "upsample_bicubic2d.vec": _upsample_bicubic,
}

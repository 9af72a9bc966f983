"""Convolutions, pooling and upsampling."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose

from networks.exported.construction import Unsupported
from networks.exported.program import Argument, Reference
from networks.onnx.operation import OnnxOperation, Translation

_SAME = frozenset({"SAME_UPPER", "SAME_LOWER"})


def _conv(op: OnnxOperation) -> None:
    kernel = op.shape(1)[2:]
    before, after = _pads(op, kernel)
    x, axes = op.tensor(), len(kernel)
    if before != after:
        x = _padded(op, before, after)
        before = (0,) * axes
    bias: dict[str, Argument] = {"bias": op.tensor(2)} if op.has(2) else {}
    op.become(
        f"conv{axes}d.default",
        input=x,
        weight=op.tensor(1),
        **bias,
        stride=op.integers("strides", (1,) * axes),
        padding=before,
        dilation=op.integers("dilations", (1,) * axes),
        groups=op.integer("group", 1),
    )


def _padded(op: OnnxOperation, before: tuple[int, ...], after: tuple[int, ...]) -> Reference:
    """The input with zeros at its sides."""
    pairs = zip(op.shape()[2:], before, after, strict=True)
    shape = (*op.shape()[:2], *(size + front + back for size, front, back in pairs))
    sides = reversed([*zip(before, after, strict=True)])
    pad = tuple(side for pair in sides for side in pair)
    return op.step("padded", "pad.default", shape, self=op.tensor(), pad=pad, mode="constant")


def _pads(op: OnnxOperation, kernel: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Zeros before and after the image along each of its axes."""
    axes, automatic = len(kernel), op.text("auto_pad", "NOTSET")
    if len(op.shape()) != axes + 2:
        raise Unsupported(f"its input has shape {op.shape()}, its window {kernel}")
    if automatic in {"NOTSET", "VALID", ""}:
        sides = op.integers("pads", (0,) * 2 * axes) if automatic != "VALID" else (0,) * 2 * axes
        if len(sides) != 2 * axes or min(sides) < 0:
            raise Unsupported(f"its pads are {sides}")
        return sides[:axes], sides[axes:]
    if automatic not in _SAME:
        raise Unsupported(f"auto_pad is {automatic}")
    strides = op.integers("strides", (1,) * axes)
    dilations = op.integers("dilations", (1,) * axes)
    if not len(strides) == len(dilations) == axes or min(*strides, *dilations) < 1:
        raise Unsupported(f"its strides are {strides}, its dilations {dilations}")
    whole = tuple(
        max(0, (-(-size // step) - 1) * step + (width - 1) * pace + 1 - size)
        for size, step, width, pace in zip(op.shape()[2:], strides, kernel, dilations, strict=True)
    )
    less, more = (*(zeros // 2 for zeros in whole),), (*(-(-zeros // 2) for zeros in whole),)
    return (less, more) if automatic == "SAME_UPPER" else (more, less)


def _conv_transpose(op: OnnxOperation) -> None:
    op.require(auto_pad="NOTSET")
    if "output_shape" in op.attributes:
        raise Unsupported("output_shape is given", "pads and output_padding")
    axes = len(op.shape()) - 2
    if any(step != 1 for step in op.integers("dilations", (1,) * axes)):
        raise Unsupported("its dilation is not 1")
    before, _ = _pads(op, op.shape(1)[2:])
    bias: dict[str, Argument] = {"bias": op.tensor(2)} if op.has(2) else {}
    op.become(
        f"conv_transpose{axes}d.input",
        input=op.tensor(0),
        weight=op.tensor(1),
        **bias,
        stride=op.integers("strides", (1,) * axes),
        padding=before,
        groups=op.integer("group", 1),
    )


def _max_pool(op: OnnxOperation) -> None:
    op.require(storage_order=0)
    kernel = op.integers("kernel_shape")
    before, after = _pads(op, kernel)
    op.become(
        f"max_pool{len(kernel)}d.default",
        self=op.tensor(),
        kernel_size=kernel,
        stride=op.integers("strides", (1,) * len(kernel)),
        padding=before,
        dilation=op.integers("dilations", (1,) * len(kernel)),
        # The windows reach as far beyond the image as the shape of the result needs.
        ceil_mode=bool(op.integer("ceil_mode", 0)) or before != after,
    )


def _average_pool(op: OnnxOperation) -> None:
    kernel = op.integers("kernel_shape")
    before, after = _pads(op, kernel)
    if any(step != 1 for step in op.integers("dilations", (1,) * len(kernel))):
        raise Unsupported("its dilation is not 1")
    if any((*before, *after)) and not op.integer("count_include_pad", 0):
        raise Unsupported("it leaves its padding out of the means", "count_include_pad=1")
    x = _padded(op, before, after) if before != after else op.tensor()
    op.become(
        f"avg_pool{len(kernel)}d.default",
        self=x,
        kernel_size=kernel,
        stride=op.integers("strides", (1,) * len(kernel)),
        padding=before if before == after else (0,) * len(kernel),
        ceil_mode=bool(op.integer("ceil_mode", 0)),
    )


def _global_average_pool(op: OnnxOperation) -> None:
    axes = tuple(range(2, len(op.shape())))
    op.become("mean.dim", self=op.tensor(), dim=axes, keepdim=True)


def _global_max_pool(op: OnnxOperation) -> None:
    plane = op.shape()[2:]
    op.become(f"max_pool{len(plane)}d.default", self=op.tensor(), kernel_size=plane, stride=plane)


_REPEATS = {
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
}
"""Coordinates and roundings by which a whole factor repeats every element."""


def _resize(op: OnnxOperation) -> None:
    x, output = op.shape(), op.result
    mode = op.text("mode", "nearest")
    if len(x) != 4 or x[:2] != output[:2]:
        raise Unsupported(f"it goes from {x} to {output}; only height and width may change")
    op.require(antialias=0, exclude_outside=0, keep_aspect_ratio_policy="stretch")
    if "axes" in op.attributes:
        raise Unsupported("axes is given", "a scale for each axis")
    old = op.kind == "Upsample" or op.version < 11
    coordinates = op.text("coordinate_transformation_mode", "half_pixel")
    coordinates = "asymmetric" if old else coordinates.removeprefix("pytorch_")
    rounding = "floor" if old else op.text("nearest_mode", "round_prefer_floor")
    scales = op.setting("scales", 1 if old else 2) or ()
    if mode == "nearest" and (coordinates, rounding) in _REPEATS:
        pairs = list(zip(x[2:], output[2:], strict=True))
        for scale, (before, after) in zip(scales[2:], pairs, strict=False):
            if not isclose(scale, after / before, rel_tol=1e-6):
                why = f"its scale {scale:g} makes {after} of {before} pixels"
                raise Unsupported(why, "the quotient of both sizes")
        if coordinates != "asymmetric" and any(after % before for before, after in pairs):
            why = f"it goes from {x[2:]} to {output[2:]} by half pixels"
            raise Unsupported(why, "a whole factor, or asymmetric coordinates and floor")
        op.become("upsample_nearest2d.vec", input=op.tensor())
    elif mode == "linear" and coordinates in {"half_pixel", "align_corners"}:
        factors: tuple[Argument, ...] = tuple(float(scale) for scale in scales[2:]) or (None, None)
        op.become(
            "upsample_bilinear2d.vec",
            input=op.tensor(),
            align_corners=coordinates == "align_corners",
            scale_factors=factors,
        )
    else:
        raise Unsupported(
            f"its mode is {mode}, its coordinates are {coordinates}, its rounding {rounding}",
            "nearest with asymmetric coordinates and floor, or linear with half_pixel",
        )


WINDOWS: Mapping[str, Translation] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "GlobalMaxPool": _global_max_pool,
    **dict.fromkeys(("Resize", "Upsample"), _resize),
}

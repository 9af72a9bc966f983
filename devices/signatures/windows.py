"""Convolution and pooling, which slide a window over an image."""

from __future__ import annotations

from devices.signatures.base import (
    Attributes,
    Operand,
    OperationError,
    Signature,
    bias,
    define,
    matrix,
    planes,
)

KINDS: dict[str, Signature] = {}

_CONV2D = (
    *("batch", "in_channels", "in_height", "in_width", "out_channels"),
    *("kernel_height", "kernel_width", "stride_height", "stride_width"),
    *("pad_top", "pad_bottom", "pad_left", "pad_right", "groups", "bias"),
)


def window_output(size: int, kernel: int, stride: int, pad_before: int, pad_after: int) -> int:
    """Number of positions of a sliding window along one axis."""
    return (size + pad_before + pad_after - kernel) // stride + 1


def _out_plane(a: Attributes) -> tuple[int, int]:
    return (
        window_output(
            a["in_height"], a["kernel_height"], a["stride_height"], a["pad_top"], a["pad_bottom"]
        ),
        window_output(
            a["in_width"], a["kernel_width"], a["stride_width"], a["pad_left"], a["pad_right"]
        ),
    )


def _conv_input(a: Attributes, role: str = "input") -> Operand:
    return Operand(role, (a["batch"], a["in_channels"], a["in_height"], a["in_width"]))


def _conv_output(a: Attributes, role: str = "output") -> Operand:
    return Operand(role, (a["batch"], a["out_channels"], *_out_plane(a)))


def _conv_weight(a: Attributes, role: str = "weight") -> Operand:
    if a["in_channels"] % a["groups"] or a["out_channels"] % a["groups"]:
        raise OperationError(
            f"conv2d: groups={a['groups']} must divide both in_channels={a['in_channels']}"
            f" and out_channels={a['out_channels']}"
        )
    per_group = a["in_channels"] // a["groups"]
    return Operand(role, (a["out_channels"], per_group, a["kernel_height"], a["kernel_width"]))


def _conv_flop(a: Attributes) -> int:
    window = _conv_weight(a).elements // a["out_channels"]
    return _conv_output(a).elements * (2 * window + a["bias"])


define(
    KINDS,
    "conv2d.forward",
    _CONV2D,
    lambda a: (_conv_input(a), _conv_weight(a), *bias(a, "out_channels", "bias")),
    lambda a: (_conv_output(a),),
    _conv_flop,
)
define(
    KINDS,
    "conv2d.input_gradient",
    _CONV2D,
    lambda a: (_conv_output(a, "output_gradient"), _conv_weight(a)),
    lambda a: (_conv_input(a, "input_gradient"),),
    _conv_flop,
)
define(
    KINDS,
    "conv2d.parameter_gradient",
    _CONV2D,
    lambda a: (_conv_input(a), _conv_output(a, "output_gradient")),
    lambda a: (
        _conv_weight(a, "weight_gradient"),
        *bias(a, "out_channels", "bias_gradient"),
    ),
    _conv_flop,
)

_POOL = (
    *("batch", "channels", "in_height", "in_width", "kernel_height", "kernel_width"),
    *("stride_height", "stride_width", "pad_top", "pad_bottom", "pad_left", "pad_right"),
)


def _pool_input(a: Attributes, role: str = "input") -> Operand:
    return Operand(role, (a["batch"], a["channels"], a["in_height"], a["in_width"]))


def _pool_output(a: Attributes, role: str = "output") -> Operand:
    return Operand(role, (a["batch"], a["channels"], *_out_plane(a)))


def _pool_flop(a: Attributes) -> int:
    return a["kernel_height"] * a["kernel_width"] * _pool_output(a).elements


for _pool in ("max_pool2d", "average_pool2d"):
    define(
        KINDS,
        f"{_pool}.forward",
        _POOL,
        lambda a: (_pool_input(a),),
        lambda a: (_pool_output(a),),
        _pool_flop,
    )
define(  # recomputes the position of the maximum (the first in a window) instead of storing it
    KINDS,
    "max_pool2d.input_gradient",
    _POOL,
    lambda a: (_pool_input(a), _pool_output(a, "output_gradient")),
    lambda a: (_pool_input(a, "input_gradient"),),
    _pool_flop,
)
define(
    KINDS,
    "average_pool2d.input_gradient",
    _POOL,
    lambda a: (_pool_output(a, "output_gradient"),),
    lambda a: (_pool_input(a, "input_gradient"),),
    _pool_flop,
)

_GLOBAL_POOL = ("batch", "channels", "plane")
define(
    KINDS,
    "global_average_pool.forward",
    _GLOBAL_POOL,
    lambda a: (planes(a, "input"),),
    lambda a: (matrix(a, "output", "batch", "channels"),),
    lambda a: planes(a, "input").elements,
)
define(
    KINDS,
    "global_average_pool.input_gradient",
    _GLOBAL_POOL,
    lambda a: (matrix(a, "output_gradient", "batch", "channels"),),
    lambda a: (planes(a, "input_gradient"),),
    lambda a: planes(a, "input").elements,
)

"""Convolution and pooling, which slide a window over an image, and upsampling."""

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


def _extent(a: Attributes, side: str) -> int:
    """Elements from the first to the last one under a window."""
    return (a[f"kernel_{side}"] - 1) * a.get(f"dilation_{side}", 1) + 1


def _out_plane(a: Attributes) -> tuple[int, int]:
    return (
        window_output(
            *(a["in_height"], _extent(a, "height"), a["stride_height"]),
            *(a["pad_top"], a["pad_bottom"]),
        ),
        window_output(
            *(a["in_width"], _extent(a, "width"), a["stride_width"]),
            *(a["pad_left"], a["pad_right"]),
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


# With dilation, the taps of a window are that far apart.
for _conv, _attributes in (
    ("conv2d", _CONV2D),
    ("dilated_conv2d", (*_CONV2D, "dilation_height", "dilation_width")),
):
    define(
        KINDS,
        f"{_conv}.forward",
        _attributes,
        lambda a: (_conv_input(a), _conv_weight(a), *bias(a, "out_channels", "bias")),
        lambda a: (_conv_output(a),),
        _conv_flop,
    )
    define(
        KINDS,
        f"{_conv}.input_gradient",
        _attributes,
        lambda a: (_conv_output(a, "output_gradient"), _conv_weight(a)),
        lambda a: (_conv_input(a, "input_gradient"),),
        _conv_flop,
    )
    define(
        KINDS,
        f"{_conv}.parameter_gradient",
        _attributes,
        lambda a: (_conv_input(a), _conv_output(a, "output_gradient")),
        lambda a: (
            _conv_weight(a, "weight_gradient"),
            *bias(a, "out_channels", "bias_gradient"),
        ),
        _conv_flop,
    )


def _require_depthwise(a: Attributes) -> None:
    if not a["groups"] == a["in_channels"] == a["out_channels"]:
        raise OperationError(
            f"depthwise_part: groups={a['groups']}, in_channels={a['in_channels']} and"
            f" out_channels={a['out_channels']} must be equal"
        )


def _define_depthwise_part(entry: str) -> None:
    whole = KINDS[f"conv2d.{entry}"]

    def reads(a: Attributes) -> tuple[Operand, ...]:
        _require_depthwise(a)
        return whole.reads(a)

    define(KINDS, f"depthwise_part.{entry}", _CONV2D, reads, whole.writes, whole.work_flop)


# Some channels of a larger convolution with a group for each channel. Of one channel alone, conv2d
# would be an ordinary convolution, which sums in another order.
for _entry in ("forward", "input_gradient", "parameter_gradient"):
    _define_depthwise_part(_entry)

# The transpose of a convolution that reads the output's shape and writes the input's. The output's
# size is stated, since several sizes give a convolution the same number of positions.
_CONV_TRANSPOSE2D = (
    *("batch", "in_channels", "in_height", "in_width", "out_channels", "out_height", "out_width"),
    *("kernel_height", "kernel_width", "stride_height", "stride_width", "pad_top", "pad_left"),
    *("groups", "bias"),
)


def _require_transposable(a: Attributes) -> None:
    """Raise :class:`OperationError` unless a window has the input's positions in the output."""
    for side, pad in (("height", "pad_top"), ("width", "pad_left")):
        stride = a[f"stride_{side}"]
        whole = (a[f"in_{side}"] - 1) * stride + a[f"kernel_{side}"] - a[pad]
        if a[f"out_{side}"] >= whole + stride:
            raise OperationError(
                f"conv_transpose2d: out_{side} is {a[f'out_{side}']}; in_{side}={a[f'in_{side}']}"
                f" gives at most {whole + stride - 1}"
            )


def _transposed_input(a: Attributes, role: str = "input") -> Operand:
    _require_transposable(a)
    return _conv_input(a, role)


def _transposed_output(a: Attributes, role: str = "output") -> Operand:
    return Operand(role, (a["batch"], a["out_channels"], a["out_height"], a["out_width"]))


def _transposed_weight(a: Attributes, role: str = "weight") -> Operand:
    if a["in_channels"] % a["groups"] or a["out_channels"] % a["groups"]:
        raise OperationError(
            f"conv_transpose2d: groups={a['groups']} must divide both"
            f" in_channels={a['in_channels']} and out_channels={a['out_channels']}"
        )
    per_group = a["out_channels"] // a["groups"]
    return Operand(role, (a["in_channels"], per_group, a["kernel_height"], a["kernel_width"]))


def _transposed_flop(a: Attributes) -> int:
    window = _transposed_weight(a).elements // a["in_channels"]
    biased = _transposed_output(a).elements * a["bias"]
    return 2 * _transposed_input(a).elements * window + biased


define(
    KINDS,
    "conv_transpose2d.forward",
    _CONV_TRANSPOSE2D,
    lambda a: (_transposed_input(a), _transposed_weight(a), *bias(a, "out_channels", "bias")),
    lambda a: (_transposed_output(a),),
    _transposed_flop,
)
define(
    KINDS,
    "conv_transpose2d.input_gradient",
    _CONV_TRANSPOSE2D,
    lambda a: (_transposed_output(a, "output_gradient"), _transposed_weight(a)),
    lambda a: (_transposed_input(a, "input_gradient"),),
    _transposed_flop,
)
define(
    KINDS,
    "conv_transpose2d.parameter_gradient",
    _CONV_TRANSPOSE2D,
    lambda a: (_transposed_input(a), _transposed_output(a, "output_gradient")),
    lambda a: (
        _transposed_weight(a, "weight_gradient"),
        *bias(a, "out_channels", "bias_gradient"),
    ),
    _transposed_flop,
)

_UPSAMPLE = ("batch", "channels", "in_height", "in_width", "factor_height", "factor_width")


def _upsample_output(a: Attributes, role: str = "output") -> Operand:
    height, width = a["in_height"] * a["factor_height"], a["in_width"] * a["factor_width"]
    return Operand(role, (a["batch"], a["channels"], height, width))


define(
    KINDS,
    "upsample_nearest2d.forward",
    _UPSAMPLE,
    lambda a: (_pool_input(a),),
    lambda a: (_upsample_output(a),),
    lambda _: 0,
)
define(
    KINDS,
    "upsample_nearest2d.input_gradient",
    _UPSAMPLE,
    lambda a: (_upsample_output(a, "output_gradient"),),
    lambda a: (_pool_input(a, "input_gradient"),),
    lambda a: _upsample_output(a).elements,
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

_MOST_PLACES = 255


def _pool_places(a: Attributes) -> Operand:
    places = a["kernel_height"] * a["kernel_width"]
    if places > _MOST_PLACES:
        raise OperationError(
            f"max_pool2d_places: a window has {places} places; at most {_MOST_PLACES} have a byte"
        )
    return Operand("places", (-(-_pool_output(a).elements // 4),), "index", 1)


define(  # also writes the position of each maximum in its window, as a byte
    KINDS,
    "max_pool2d_places.forward",
    _POOL,
    lambda a: (_pool_input(a),),
    lambda a: (_pool_output(a), _pool_places(a)),
    _pool_flop,
)
define(
    KINDS,
    "max_pool2d_places.input_gradient",
    _POOL,
    lambda a: (_pool_places(a), _pool_output(a, "output_gradient")),
    lambda a: (_pool_input(a, "input_gradient"),),
    lambda a: _pool_output(a).elements,
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

_UPSAMPLE_BILINEAR = (
    *("batch", "channels", "in_height", "in_width", "out_height", "out_width"),
    "align_corners",
)
_DISTANCES = ("row_distance", "column_distance")
define(  # scalars: distances of two outputs, in rows and columns of the input
    KINDS,
    "upsample_bilinear2d.forward",
    _UPSAMPLE_BILINEAR,
    lambda a: (_pool_input(a),),
    lambda a: (_enlarged(a, "output"),),
    lambda a: 6 * _enlarged(a, "output").elements,
    scalars=_DISTANCES,
)
define(
    KINDS,
    "upsample_bilinear2d.input_gradient",
    _UPSAMPLE_BILINEAR,
    lambda a: (_enlarged(a, "output_gradient"),),
    lambda a: (_pool_input(a, "input_gradient"),),
    lambda a: 6 * _enlarged(a, "").elements,
    scalars=_DISTANCES,
)


def _enlarged(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["batch"], a["channels"], a["out_height"], a["out_width"]))

"""Cases of the kernels' families that are computed with PyTorch: names and attributes alone.

Apart from the module that computes them, so that listing them does not import PyTorch.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

Attributes = Mapping[str, int]


def _conv(
    shape: tuple[int, int, int, int],
    out: int,
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    groups: int = 1,
    bias: int = 0,
) -> tuple[str, Attributes]:
    sizes = dict(zip(("batch", "in_channels", "in_height", "in_width"), shape, strict=True))
    return "conv2d", {
        **sizes,
        "out_channels": out,
        **_window_attributes(kernel, stride, pads),
        "groups": groups,
        "bias": bias,
    }


def _copied(
    source: int, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[str, Attributes]:
    """A copy of up to six axes."""
    ones = (1,) * (6 - len(sizes))
    numbered = {f"size{axis}": size for axis, size in enumerate((*ones, *sizes))}
    numbered |= {f"stride{axis}": stride for axis, stride in enumerate((*ones, *strides))}
    return "strided_copy", {"source": source, "offset": offset, **numbered}


def _padded(
    source: int, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[str, Attributes]:
    return "pad", _copied(source, offset, sizes, strides)[1]


def _dilated(
    case: tuple[str, Attributes], dilation_height: int, dilation_width: int
) -> tuple[str, Attributes]:
    """A convolution whose taps are farther apart."""
    more = {"dilation_height": dilation_height, "dilation_width": dilation_width}
    return "dilated_conv2d", {**case[1], **more}


def _transposed(
    shape: tuple[int, int, int, int],
    out: tuple[int, int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pads: tuple[int, int] = (0, 0),
    groups: int = 1,
    bias: int = 0,
) -> tuple[str, Attributes]:
    names = ("batch", "in_channels", "in_height", "in_width")
    more = ("out_channels", "out_height", "out_width", "kernel_height", "kernel_width")
    last = ("stride_height", "stride_width", "pad_top", "pad_left", "groups", "bias")
    values = (*shape, *out, *kernel, *stride, *pads, groups, bias)
    return "conv_transpose2d", dict(zip((*names, *more, *last), values, strict=True))


def _pooled(
    family: str,
    shape: tuple[int, int, int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> tuple[str, Attributes]:
    sizes = dict(zip(("batch", "channels", "in_height", "in_width"), shape, strict=True))
    return family, {**sizes, **_window_attributes(kernel, stride, pads)}


def _window_attributes(
    kernel: tuple[int, int], stride: tuple[int, int], pads: tuple[int, int, int, int]
) -> dict[str, int]:
    names = ("kernel_height", "kernel_width", "stride_height", "stride_width")
    sides = ("pad_top", "pad_bottom", "pad_left", "pad_right")
    return dict(zip((*names, *sides), (*kernel, *stride, *pads), strict=True))


def _attended(
    batch: int,
    lengths: tuple[int, int],
    heads: tuple[int, int],
    features: int,
    causal: int = 0,
    mask: tuple[int, int, int] = (0, 0, 0),
    packed: int = 0,
) -> tuple[str, Attributes]:
    names = ("batch", "queries", "keys", "heads", "key_heads", "head_features", "causal", "dropout")
    values = (batch, *lengths, *heads, features, causal, 0, packed, *mask)
    more = ("packed", "mask_batch", "mask_heads", "mask_queries")
    return "attention", dict(zip((*names, *more), values, strict=True))


_MATMUL = (
    *("batch", "heads", "rows", "depth", "columns"),
    *("left_transposed", "left_interleaved", "right_transposed", "right_interleaved"),
)
_RECURRENT = ("steps", "batch", "hidden", "bias", "batch_first", "reverse", "initial_hidden")


def _layer_of(family: str, *values: int) -> tuple[str, Attributes]:
    """A recurrent layer; only an LSTM takes the last two values."""
    names = (*_RECURRENT, "initial_cell", "final_cell") if family == "lstm" else _RECURRENT
    return family, dict(zip(names, values, strict=False))


_UPSAMPLE = ("batch", "channels", "in_height", "in_width", "factor_height", "factor_width")


_BILINEAR = (*_UPSAMPLE[:4], "out_height", "out_width", "align_corners")
_LARGE = ("outer", "middle", "between", "inner")
_FUNCTIONS = (
    *("add_number", "multiply_number", "elu", "softplus", "absolute", "exponential", "square"),
    *("logarithm", "reciprocal", "square_root", "reciprocal_root", "binary_cross_entropy"),
    "gelu_tanh",
)


def recorded_cases() -> list[tuple[str, Attributes]]:
    """Small shapes that together reach every path in the kernels."""
    pools = [
        case
        for family in ("max_pool2d", "average_pool2d")
        for case in (
            _pooled(family, (2, 3, 6, 8), (2, 2), (2, 2)),
            _pooled(family, (1, 2, 9, 7), (3, 3), (2, 2), (1, 1, 1, 1)),
            _pooled(family, (1, 2, 5, 23), (3, 2), (1, 1), (1, 0, 0, 1)),
            _pooled(family, (2, 1, 7, 6), (2, 3), (3, 2), (0, 1, 1, 0)),
        )
    ]
    elementwise = [
        (family, {"elements": elements})
        for family in ("relu", "tanh", "sigmoid", "gelu", "flatten", "add", "gradient")
        for elements in (1, 301)
    ]
    recurrent = [
        _layer_of(family, *sizes, *states)
        for family in ("lstm", "gru", "rnn_tanh", "rnn_relu")
        for sizes, states in (
            ((4, 3, 5, 1, 0, 0), (0, 0, 0)),
            ((3, 2, 6, 0, 1, 1), (1, 0, 1)),
            ((5, 7, 9, 1, 1, 0), (0, 1, 0)),
            ((1, 4, 3, 1, 0, 0), (1, 1, 1)),
            ((1, 1, 2, 0, 0, 1), (0, 0, 0)),
            ((6, 1, 17, 1, 0, 1), (1, 1, 1)),
        )
    ]
    return [
        _conv((2, 3, 7, 6), 5, (3, 3), pads=(1, 1, 1, 1), bias=1),
        _conv((2, 4, 6, 9), 7, (3, 2), (2, 1), (1, 0, 2, 1)),
        _conv((3, 6, 5, 5), 4, (1, 1)),
        _conv((1, 6, 6, 6), 9, (1, 1), bias=1),
        _conv((2, 5, 9, 8), 6, (1, 1), (2, 2)),
        _conv((1, 1, 12, 10), 8, (10, 4), (2, 2), (4, 5, 1, 1), bias=1),
        _conv((2, 6, 6, 5), 4, (3, 3), pads=(1, 1, 1, 1), groups=2),
        _conv((1, 6, 7, 7), 9, (2, 3), (2, 3), (0, 1, 1, 1), groups=3, bias=1),
        _conv((2, 5, 8, 7), 5, (3, 3), pads=(1, 1, 1, 1), groups=5, bias=1),
        _conv((2, 4, 9, 9), 4, (3, 3), (2, 2), (0, 1, 0, 1), groups=4),
        _conv((1, 3, 6, 21), 6, (3, 5), (1, 1), (1, 1, 2, 2), groups=3),
        _conv((2, 3, 7, 8), 6, (5, 2), (2, 3), (2, 1, 0, 3), groups=3, bias=1),
        _conv((5, 8, 4, 4), 8, (3, 3), pads=(1, 1, 1, 1)),
        _conv((2, 2, 2, 2), 3, (5, 5), pads=(3, 3, 3, 3)),
        _conv((1, 2, 3, 40), 2, (1, 3), pads=(0, 0, 1, 1)),
        _conv((2, 20, 6, 7), 4, (3, 3), pads=(1, 1, 1, 1)),  # several tiles of channels
        _conv((3, 2, 4, 4), 70, (3, 3), pads=(1, 1, 1, 1), bias=1),  # several stages
        ("linear", {"rows": 1, "in_features": 7, "out_features": 5, "bias": 1}),
        ("linear", {"rows": 9, "in_features": 33, "out_features": 29, "bias": 1}),
        ("linear", {"rows": 13, "in_features": 40, "out_features": 3, "bias": 0}),
        ("linear", {"rows": 2, "in_features": 300, "out_features": 5, "bias": 1}),  # deep blocks
        ("batch_norm", {"batch": 4, "channels": 3, "plane": 37}),
        ("batch_norm", {"batch": 9, "channels": 5, "plane": 1}),
        ("batch_norm", {"batch": 1, "channels": 2, "plane": 100}),
        ("layer_norm", {"rows": 5, "features": 3}),
        ("layer_norm", {"rows": 3, "features": 77}),
        *elementwise,
        *pools,
        ("global_average_pool", {"batch": 3, "channels": 5, "plane": 49}),
        ("global_average_pool", {"batch": 1, "channels": 2, "plane": 1}),
        ("concat", {"outer": 3, "left_inner": 5, "right_inner": 18}),
        ("concat", {"outer": 1, "left_inner": 40, "right_inner": 1}),
        *(
            (family, attributes)
            for family in ("attention_scores", "attention_context")
            for attributes in (
                {"batch": 2, "sequence": 5, "heads": 3, "head_features": 4},
                {"batch": 1, "sequence": 27, "heads": 1, "head_features": 33},
            )
        ),
        ("softmax", {"rows": 7, "columns": 10}),
        ("softmax", {"rows": 2, "columns": 131}),
        ("embedding", {"rows": 19, "vocabulary": 11, "features": 6}),
        ("softmax_cross_entropy", {"rows": 6, "classes": 10}),
        ("softmax_cross_entropy", {"rows": 2, "classes": 70}),
        ("mean_squared_error", {"elements": 3}),
        ("mean_squared_error", {"elements": 333}),
        ("sgd", {"elements": 133}),
        ("sgd_momentum", {"elements": 133}),
        ("sgd_nesterov", {"elements": 133}),
        _copied(1, 0, (1,), (1,)),
        _copied(60, 0, (4, 5, 3), (1, 12, 4)),  # a transpose
        _copied(60, 12, (2, 9), (24, 1)),  # a part
        _copied(40, 3, (12,), (3,)),
        _copied(7, 0, (5, 7, 4), (0, 1, 0)),  # repetitions
        _copied(64, 0, (2,) * 6, (1, 2, 4, 8, 16, 32)),
        ("adam", {"elements": 1}),
        ("adam", {"elements": 301}),
        *(
            (family, {"elements": elements})
            for family in ("clamp", "leaky_relu", "hard_sigmoid", "hard_swish", "silu", "multiply")
            for elements in (1, 301)
        ),
        ("batch_norm_frozen", {"batch": 4, "channels": 3, "plane": 37}),
        ("batch_norm_frozen", {"batch": 2, "channels": 5, "plane": 1}),
        _transposed((2, 5, 4, 3), (3, 8, 6), (2, 2), (2, 2), bias=1),
        _transposed((1, 4, 5, 6), (6, 10, 12), (3, 3), (2, 2), (1, 1)),  # output padding
        _transposed((2, 3, 4, 5), (4, 5, 6), (4, 3), (1, 1), (1, 1), bias=1),
        _transposed((1, 6, 3, 4), (4, 9, 8), (2, 3), (3, 2), groups=2, bias=1),  # gaps
        _transposed((2, 3, 5, 4), (3, 9, 9), (3, 3), (2, 2), (1, 0), groups=3, bias=1),
        ("upsample_nearest2d", dict(zip(_UPSAMPLE, (2, 3, 4, 5, 2, 2), strict=True))),
        ("upsample_nearest2d", dict(zip(_UPSAMPLE, (1, 2, 3, 7, 3, 1), strict=True))),
        ("rms_norm", {"rows": 5, "features": 3}),
        ("rms_norm", {"rows": 3, "features": 77}),
        ("group_norm", {"batch": 3, "channels": 6, "plane": 35, "groups": 2}),
        ("group_norm", {"batch": 2, "channels": 4, "plane": 9, "groups": 4}),
        ("group_norm", {"batch": 4, "channels": 5, "plane": 1, "groups": 1}),
        *((family, {"elements": elements}) for family in _FUNCTIONS for elements in (1, 301)),
        *(
            (family, dict(zip(_LARGE, sizes, strict=True)))
            for family in ("broadcast_add", "broadcast_multiply", "broadcast_select", "reduce")
            for sizes in ((1, 15, 49, 1), (3, 1, 1, 35), (2, 5, 3, 1), (1, 4, 3, 18), (2, 3, 5, 7))
        ),
        ("embedding_padded", {"rows": 19, "vocabulary": 5, "features": 6, "padding_index": 0}),
        *(
            ("rotary", dict(zip(_LARGE, sizes, strict=True)))
            for sizes in ((1, 5, 3, 8), (2, 3, 1, 38))
        ),
        *(
            ("upsample_bilinear2d", dict(zip(_BILINEAR, sizes, strict=True)))
            for sizes in ((2, 3, 4, 6, 8, 15, 0), (1, 2, 1, 4, 2, 10, 0), (2, 2, 4, 5, 7, 11, 1))
        ),
        *(
            ("matmul", dict(zip(_MATMUL, (2, 2, 3, 5, 4, *layouts), strict=True)))
            for layouts in itertools.product((0, 1), repeat=4)
        ),
        _attended(2, (5, 5), (3, 3), 4),
        _attended(1, (1, 1), (1, 1), 1),
        _attended(1, (37, 37), (4, 2), 17, causal=1),
        _attended(2, (7, 20), (2, 1), 8, causal=1),
        _attended(2, (20, 7), (3, 1), 3, causal=1),
        _attended(2, (6, 9), (2, 2), 5, mask=(2, 1, 1)),  # of padding
        _attended(1, (67, 70), (2, 2), 6, mask=(1, 2, 67)),
        _attended(2, (9, 9), (4, 2), 3, causal=1, packed=1),
        _attended(1, (67, 67), (2, 2), 5, mask=(1, 1, 1), packed=1),
        _attended(2, (67, 70), (2, 1), 6, causal=1, mask=(1, 1, 67)),
        *recurrent,
        _padded(2 * 5 * 7, 9, (2, 3, 4), (35, 7, 1)),  # 3 x 4 within 5 x 7
        _padded(40, 3, (1, 12), (40, 3)),
        _dilated(_conv((2, 3, 7, 9), 5, (3, 3), pads=(2, 2, 2, 2), bias=1), 2, 2),
        _dilated(_conv((2, 4, 1, 17), 6, (1, 3), pads=(0, 0, 8, 0)), 1, 4),  # causal
        _dilated(_conv((1, 4, 9, 8), 6, (2, 3), (2, 1), (1, 0, 2, 3), groups=2), 3, 2),
        _dilated(_conv((2, 5, 8, 9), 5, (3, 3), pads=(2, 2, 1, 1), groups=5, bias=1), 2, 1),
        _dilated(_conv((1, 3, 9, 11), 6, (2, 3), (1, 2), (0, 1, 3, 1), groups=3), 4, 3),
        *(
            ("weighted_cross_entropy", {"rows": rows, "classes": classes, "by_weight": by_weight})
            for rows, classes, by_weight in ((7, 10, 1), (4, 70, 0))
        ),
        ("from_integers", {"elements": 301}),
        ("to_indices", {"elements": 301, "bound": 12}),
        ("to_indices", {"elements": 301, "bound": 0}),
        ("equal_number", {"elements": 301}),
        ("cumulative_sum", {"outer": 3, "size": 7, "inner": 1}),
        ("cumulative_sum", {"outer": 2, "size": 1, "inner": 19}),
        ("cumulative_sum", {"outer": 2, "size": 5, "inner": 19}),
    ]


def larger_cases() -> list[tuple[str, Attributes]]:
    """Shapes of real networks, compared where PyTorch is installed."""
    return [
        _conv((8, 3, 32, 32), 64, (3, 3), pads=(1, 1, 1, 1)),
        _conv((2, 64, 32, 32), 64, (3, 3), pads=(1, 1, 1, 1)),
        _conv((8, 128, 16, 16), 96, (3, 3), (2, 2), (1, 1, 1, 1)),
        _conv((8, 64, 16, 16), 128, (1, 1), (2, 2)),
        _conv((3, 320, 4, 4), 320, (3, 3), pads=(1, 1, 1, 1)),
        _conv((1, 3, 96, 96), 16, (7, 7), (2, 2), (3, 3, 3, 3)),
        _conv((2, 64, 25, 5), 64, (3, 3), pads=(1, 1, 1, 1), groups=64, bias=1),
        _conv((1, 32, 48, 48), 32, (3, 3), (2, 2), (0, 1, 0, 1), groups=32),
        _conv((2, 64, 24, 24), 128, (1, 1)),
        _conv((4, 256, 3, 3), 256, (1, 1)),
        _conv((2, 96, 12, 12), 64, (3, 3), pads=(1, 1, 1, 1), groups=4),
        _transposed((2, 64, 12, 12), (32, 24, 24), (2, 2), (2, 2), bias=1),
        _transposed((2, 48, 14, 14), (24, 28, 28), (3, 3), (2, 2), (1, 1)),
        ("linear", {"rows": 8, "in_features": 640, "out_features": 128, "bias": 1}),
        ("linear", {"rows": 96, "in_features": 300, "out_features": 520, "bias": 1}),
        ("batch_norm", {"batch": 8, "channels": 16, "plane": 1024}),
        ("layer_norm", {"rows": 64, "features": 768}),
        ("rms_norm", {"rows": 64, "features": 768}),
        ("group_norm", {"batch": 2, "channels": 64, "plane": 784, "groups": 8}),
        ("gelu", {"elements": 100_000}),
        ("tanh", {"elements": 100_000}),
        ("sigmoid", {"elements": 100_000}),
        ("silu", {"elements": 100_000}),
        ("hard_swish", {"elements": 100_000}),
        ("softmax", {"rows": 100, "columns": 512}),
        ("softmax_cross_entropy", {"rows": 64, "classes": 1000}),
        _pooled("max_pool2d", (2, 8, 56, 56), (3, 3), (2, 2), (1, 1, 1, 1)),
        _pooled("average_pool2d", (2, 8, 56, 56), (2, 2), (2, 2)),
        ("attention_scores", {"batch": 2, "sequence": 128, "heads": 4, "head_features": 64}),
        ("attention_context", {"batch": 2, "sequence": 128, "heads": 4, "head_features": 64}),
        ("matmul", dict(zip(_MATMUL, (2, 4, 120, 64, 130, 0, 1, 1, 1), strict=True))),
        _attended(2, (197, 197), (3, 3), 64, packed=1),
        _attended(1, (256, 256), (8, 2), 64, causal=1),
        _attended(2, (130, 300), (4, 4), 80, mask=(2, 1, 130)),
        *(
            _layer_of(family, 20, 8, hidden, 1, batch_first, 0, 0, 0, 0)
            for family in ("lstm", "gru", "rnn_tanh")
            for hidden, batch_first in ((100, 0), (32, 1))
        ),
    ]

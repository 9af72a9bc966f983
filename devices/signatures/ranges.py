"""Shapes that networks use: random attributes of every kind of operation, for a designed sweep.

A draw has a size of its own, from the smallest layer to the largest: all sizes of an operation are
drawn log-uniformly from the same share of their ranges. Channels and features are mostly multiples
of eight, sides of images mostly those of a usual image, halved a few times, and batches mostly
powers of two, as in networks that people publish: kernels are faster where no vector is left over.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from devices.signatures import SIGNATURES

_Value = TypeVar("_Value")

# Sides of images from 28 to 224, halved until a few pixels are left.
_SIDES = (2, 3, 4, 5, 6, 7, 8, 12, 14, 16, 24, 28, 32, 48, 56, 64, 96, 112, 128, 192, 224)

# Of the range that a draw's size leaves, on a logarithmic scale, each size takes at least this.
_LEAST_SHARE = 0.25


class _Draw:
    """Sizes of one operation, within ``share`` of the logarithm of each range."""

    def __init__(self, random_: random.Random, share: float) -> None:
        self._random = random_
        self._share = share

    def size(self, low: int, high: int) -> int:
        """Any size."""
        share = self._share * self._random.uniform(_LEAST_SHARE, 1.0)
        return round(low * math.exp(share * math.log(high / low)))

    def channels(self, high: int = 1024) -> int:
        """Channels or features: mostly a multiple of 8, or of 4 if small."""
        found = self.size(1, high)
        if found < 4 or self.chance(0.2):
            return found
        step = 4 if found < 12 else 8
        return step * round(found / step)

    def side(self) -> int:
        """Side of an image."""
        found = self.size(2, 224)
        if self.chance(0.3):
            return found
        return min(_SIDES, key=lambda side: abs(math.log(side / found)))

    def batch(self) -> int:
        found = self.size(1, 32)
        return found if self.chance(0.3) else 1 << round(math.log2(found))

    def of(self, *values: _Value) -> _Value:
        return self._random.choice(values)

    def chance(self, probability: float) -> int:
        return 1 if self._random.random() < probability else 0


def _conv2d(d: _Draw) -> dict[str, int]:
    channels, plane = d.channels(), _image(d)
    height = d.of(1, 3, 3, 3, 5, 7)
    width = 1 if plane[1] == 1 else d.of(*9 * (height,), d.of(1, 3, 4))
    stride = d.of(1, 1, 1, 2)
    same = d.chance(0.85)
    groups = d.of(*5 * (1,), *3 * (channels,), math.gcd(channels, d.of(2, 4, 8)))
    out = channels if groups == channels else groups * -(-d.channels() // groups)
    return {
        "batch": d.batch(),
        "in_channels": channels,
        "in_height": plane[0],
        "in_width": plane[1],
        "out_channels": out,
        "kernel_height": height,
        "kernel_width": width,
        "stride_height": stride,
        "stride_width": 1 if plane[1] == 1 else stride,
        **_padding(height if same else 1, width if same else 1),
        "groups": groups,
        "bias": d.chance(0.5),
    }


def _image(d: _Draw) -> tuple[int, int]:
    """Height and width: mostly square; one column for a sequence, two sizes for a spectrogram."""
    height = d.side()
    return height, d.of(height, height, height, height, 1, d.side())


def _padding(height: int, width: int) -> dict[str, int]:
    """Padding that keeps the size under a window with stride 1."""
    return {
        "pad_top": (height - 1) // 2,
        "pad_bottom": height // 2,
        "pad_left": (width - 1) // 2,
        "pad_right": width // 2,
    }


def _dilated_conv2d(d: _Draw) -> dict[str, int]:
    found, dilation = _conv2d(d), d.of(1, 2, 2, 4, 8)
    pads = {name: dilation * value for name, value in found.items() if name.startswith("pad_")}
    wide = 1 if found["kernel_width"] == 1 else dilation
    return {**found, **pads, "dilation_height": dilation, "dilation_width": wide}


def _ungrouped(d: _Draw) -> dict[str, int]:
    return {**_conv2d(d), "out_channels": d.channels(), "groups": 1}


def _conv_transpose2d(d: _Draw) -> dict[str, int]:
    kernel, stride = d.of((2, 2), (4, 2), (3, 2), (3, 1))
    pad = (kernel - stride + 1) // 2
    height, width = _image(d)
    return {
        "batch": d.batch(),
        "in_channels": d.channels(),
        "in_height": height,
        "in_width": width,
        "out_channels": d.channels(),
        "out_height": height * stride,
        "out_width": width * stride,
        "kernel_height": kernel,
        "kernel_width": kernel,
        "stride_height": stride,
        "stride_width": stride,
        "pad_top": pad,
        "pad_left": pad,
        "groups": 1,
        "bias": d.chance(0.5),
    }


def _upsample_nearest2d(d: _Draw) -> dict[str, int]:
    factor = d.of(2, 2, 4)
    return {**_images(d), "factor_height": factor, "factor_width": factor}


def _images(d: _Draw) -> dict[str, int]:
    height, width = _image(d)
    return {"batch": d.batch(), "channels": d.channels(), "in_height": height, "in_width": width}


def _upsample_bilinear2d(d: _Draw) -> dict[str, int]:
    found, factor = _images(d), d.of(2, 2, 3, 4)
    out = {f"out_{side}": factor * found[f"in_{side}"] for side in ("height", "width")}
    return {**found, **out, "align_corners": d.chance(0.5)}


def _pool(d: _Draw) -> dict[str, int]:
    kernel, stride, pad = d.of((2, 2, 0), (2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 0))
    return {
        **_images(d),
        **{f"kernel_{side}": kernel for side in ("height", "width")},
        **{f"stride_{side}": stride for side in ("height", "width")},
        **{f"pad_{side}": pad for side in ("top", "bottom", "left", "right")},
    }


def _planes(d: _Draw) -> dict[str, int]:
    return {"batch": d.batch(), "channels": d.channels(), "plane": math.prod(_image(d))}


def _group_norm(d: _Draw) -> dict[str, int]:
    groups = d.of(1, 2, 4, 8, 32)
    return {**_planes(d), "channels": groups * -(-d.channels() // groups), "groups": groups}


def _linear(d: _Draw) -> dict[str, int]:
    return {
        "rows": d.size(1, 2048),
        "in_features": d.channels(4096),
        "out_features": d.channels(4096),
        "bias": d.chance(0.7),
    }


def _embedding(d: _Draw) -> dict[str, int]:
    return {"rows": d.size(1, 4096), "vocabulary": d.size(16, 50000), "features": d.channels(768)}


def _attention(d: _Draw) -> dict[str, int]:
    return {
        "batch": d.batch(),
        "sequence": d.size(4, 512),
        "heads": d.size(1, 16),
        "head_features": d.of(4, 8, 16, 32, 64),
    }


def _fused_attention(d: _Draw) -> dict[str, int]:
    queries, shared = d.size(4, 512), d.of(1, 1, 2, 4)
    key_heads, batch = d.size(1, 12), d.batch()
    packed = d.chance(0.3)
    masked = d.chance(0.25)
    return {
        "batch": batch,
        "queries": queries,
        "keys": queries if packed or d.chance(0.8) else d.size(4, 512),
        "heads": shared * key_heads,
        "key_heads": key_heads,
        "head_features": d.of(4, 8, 16, 32, 64),
        "causal": d.chance(0.4),
        "dropout": d.chance(0.2),
        "packed": packed,
        "mask_batch": masked * d.of(1, batch),
        "mask_heads": masked,
        "mask_queries": masked * d.of(1, queries),
    }


def _matmul(d: _Draw) -> dict[str, int]:
    flags = ("left_transposed", "left_interleaved", "right_transposed", "right_interleaved")
    return {
        "batch": d.batch(),
        "heads": d.of(1, d.size(1, 12)),
        "rows": d.size(1, 512),
        "depth": d.channels(512),
        "columns": d.channels(512),
        **{flag: d.chance(0.3) for flag in flags},
    }


def _strided(d: _Draw) -> dict[str, int]:
    """Axes of a whole tensor, of which one may be cut, in any order, and one repeated."""
    whole = [d.size(1, 64) for _ in range(d.of(2, 3, 4))]
    strides = [math.prod(whole[axis + 1 :]) for axis in range(len(whole))]
    sizes, offset = list(whole), 0
    if d.chance(0.5):
        axis = d.of(*range(len(whole)))
        sizes[axis] = max(1, whole[axis] // d.of(2, 3, 4))
        offset = (whole[axis] - sizes[axis]) * strides[axis]
    order = list(range(len(whole)))
    if d.chance(0.5):
        first, second = d.of(*order), d.of(*order)
        order[first], order[second] = order[second], order[first]
    axes = [(sizes[axis], strides[axis]) for axis in order]
    axes = [(1, 1)] * (6 - len(axes)) + axes
    return {
        "source": math.prod(whole),
        "offset": offset,
        **{f"size{axis}": size for axis, (size, _) in enumerate(axes)},
        **{f"stride{axis}": stride for axis, (_, stride) in enumerate(axes)},
    }


def _broadcast(d: _Draw) -> dict[str, int]:
    outer, middle, between, inner = d.of(
        (1, 1, 0, 0), (1, 1, 1, 0), (1, 0, 0, 1), (0, 1, 1, 0), (1, 1, 0, 1), (1, 1, 1, 1)
    )
    return {
        "outer": d.size(1, 512) if outer else 1,
        "middle": d.channels() if middle else 1,
        "between": d.size(1, 1024) if between else 1,
        "inner": d.channels(768) if inner else 1,
    }


def _rotary(d: _Draw) -> dict[str, int]:
    inner = d.of(8, 16, 32, 64, 128)
    middle, between = d.of((d.size(4, 512), d.size(1, 12)), (d.size(4, 512), 1))
    return {"outer": d.batch(), "middle": middle, "between": between, "inner": inner}


def _recurrent(d: _Draw) -> dict[str, int]:
    return {
        "steps": d.size(4, 128),
        "batch": d.batch(),
        "hidden": d.channels(256),
        "bias": d.chance(0.8),
        "batch_first": d.chance(0.5),
        "reverse": d.chance(0.2),
        "initial_hidden": d.chance(0.2),
    }


def _lstm(d: _Draw) -> dict[str, int]:
    return {**_recurrent(d), "initial_cell": d.chance(0.2), "final_cell": d.chance(0.3)}


def _part(d: _Draw, size: int) -> dict[str, int]:
    """Some channels, at the start or after as many."""
    channels = max(1, size // d.of(2, 4, 8))
    return {"first": channels * d.chance(0.5), "channels": channels}


def _both_parts(d: _Draw, found: dict[str, int], outputs: str, inputs: str) -> dict[str, int]:
    """Some output and some input channels. Those after the first input channels have no bias."""
    found |= _part(d, found[outputs])
    found["inputs"] = max(1, found[inputs] // d.of(1, 1, 2, 4))
    is_second = d.chance(0.5) and 2 * found["inputs"] <= found[inputs]
    found["first_input"] = found["inputs"] if is_second else 0
    return {**found, "bias": 0 if is_second else found["bias"]}


def _conv2d_part(d: _Draw) -> dict[str, int]:
    return _both_parts(d, _ungrouped(d), "out_channels", "in_channels")


def _gathered(found: dict[str, int]) -> dict[str, int]:
    """The convolution with the image's size as its result's: its input gradient is gathered."""
    padding = _padding(found["kernel_height"], found["kernel_width"])
    return {**found, "stride_height": 1, "stride_width": 1, **padding}


def _strided_windows(found: dict[str, int]) -> dict[str, int]:
    """The convolution with strides: its input gradient is summed in columns."""
    return {**found, "stride_height": 2, "stride_width": 1 if found["in_width"] == 1 else 2}


def _fold(d: _Draw) -> dict[str, int]:
    found = _strided_windows(_ungrouped(d))
    return {**found, "first_input": 0, "inputs": max(1, found["in_channels"] // d.of(1, 1, 2, 4))}


def _linear_part(d: _Draw) -> dict[str, int]:
    return _both_parts(d, _linear(d), "out_features", "in_features")


def _embedding_part(d: _Draw) -> dict[str, int]:
    found = _embedding(d)
    return {**found, "padding_index": 0, **_part(d, found["vocabulary"])}


def _depthwise_part(d: _Draw) -> dict[str, int]:
    channels = d.channels(256)
    return {**_conv2d(d), **dict.fromkeys(("in_channels", "out_channels", "groups"), channels)}


def _dropout_part(d: _Draw) -> dict[str, int]:
    inner, parts = d.size(1, 1 << 16), d.of(2, 4, 8)
    first = inner * d.of(*range(parts))
    return {"outer": d.batch(), "inner": inner, "distance": parts * inner, "first": first}


def _conv2d_block(d: _Draw) -> dict[str, int]:
    return {**_ungrouped(d), **_block(d), "in_channels": d.channels(128)}


def _linear_block(d: _Draw) -> dict[str, int]:
    return {**_linear(d), **_block(d), "in_features": d.channels(512)}


def _block(d: _Draw) -> dict[str, int]:
    """The first block of a chain, which may have the bias, or a later one."""
    continued = d.chance(0.7)
    return {"continued": continued, "bias": 0 if continued else d.chance(0.5)}


def _cross_entropy_block(d: _Draw) -> dict[str, int]:
    classes = d.size(2, 50000)
    return {"rows": d.size(1, 4096), "classes": classes, **_part(d, classes)}


def _norm_block(d: _Draw) -> dict[str, int]:
    features = d.channels(1024)
    return {"rows": d.size(1, 8192), "features": features, **_part(d, features)}


_Attributes = Callable[[_Draw], dict[str, int]]

_OF_FAMILY: Mapping[str, _Attributes] = {
    "conv2d": _conv2d,
    "dilated_conv2d": _dilated_conv2d,
    "conv_transpose2d": _conv_transpose2d,
    "upsample_nearest2d": _upsample_nearest2d,
    "upsample_bilinear2d": _upsample_bilinear2d,
    "linear": _linear,
    "embedding": _embedding,
    "embedding_padded": lambda d: {**_embedding(d), "padding_index": 0},
    "attention_scores": _attention,
    "attention_context": _attention,
    "attention": _fused_attention,
    "matmul": _matmul,
    "softmax": lambda d: {"rows": d.size(1, 8192), "columns": d.channels(2048)},
    "softmax_cross_entropy": lambda d: {"rows": d.size(1, 4096), "classes": d.size(2, 50000)},
    "weighted_cross_entropy": lambda d: {
        "rows": d.size(1, 4096),
        "classes": d.size(2, 50000),
        "by_weight": d.chance(0.8),
    },
    "layer_norm": lambda d: {"rows": d.size(1, 8192), "features": d.channels(1024)},
    "rms_norm": lambda d: {"rows": d.size(1, 8192), "features": d.channels(1024)},
    "group_norm": _group_norm,
    "concat": lambda d: {
        "outer": d.size(1, 256),
        "left_inner": d.size(1, 1 << 16),
        "right_inner": d.size(1, 1 << 16),
    },
    "strided_copy": _strided,
    "pad": _strided,
    "rotary": _rotary,
    "lstm": _lstm,
    "conv2d_part": _conv2d_part,
    "linear_part": _linear_part,
    "embedding_part": _embedding_part,
    "embedding_padded_part": _embedding_part,
    "conv2d_block": _conv2d_block,
    "linear_block": _linear_block,
    "cross_entropy_block": _cross_entropy_block,
    "weighted_cross_entropy_block": lambda d: {
        **_cross_entropy_block(d),
        "by_weight": d.chance(0.8),
    },
    **dict.fromkeys(("layer_norm_block", "rms_norm_block"), _norm_block),
    "depthwise_part": _depthwise_part,
    "dropout_part": _dropout_part,
    "dropout_rows": lambda d: {"rows": d.batch(), "inner": d.size(1, 1 << 18)},
    "to_indices": lambda d: {"elements": d.size(1, 1 << 14), "bound": d.size(16, 50000)},
    "cumulative_sum": lambda d: {
        "outer": d.batch(),
        "size": d.size(4, 1024),
        "inner": d.of(1, d.channels()),
    },
}
_OF_KIND: Mapping[str, _Attributes] = {
    "conv2d_part.input_gradient": lambda d: _gathered(_conv2d_part(d)),
    "conv2d_block.input_gradient": lambda d: _gathered(_conv2d_block(d)),
    "conv2d_block.columns_gradient": lambda d: _strided_windows(_conv2d_block(d)),
    "conv2d_part.columns_gradient": lambda d: _strided_windows(_conv2d_part(d)),
    "conv2d_part.fold": _fold,
}
_OF_ATTRIBUTES: Mapping[tuple[str, ...], _Attributes] = {
    SIGNATURES["max_pool2d.forward"].attributes: _pool,
    SIGNATURES["batch_norm.forward"].attributes: _planes,
    SIGNATURES["relu.forward"].attributes: lambda d: {"elements": d.size(1, 1 << 22)},
    SIGNATURES["broadcast_add.forward"].attributes: _broadcast,
    SIGNATURES["gru.forward"].attributes: _recurrent,
}


def draw_attributes(kind: str, random_: random.Random) -> dict[str, int]:
    """Draw attributes of an operation.

    A few draws are of no valid operation, such as a window that is larger than its image.

    Args:
        kind: Kind of the operation.
        random_: Source of the draw.
    """
    signature = SIGNATURES[kind]
    draw = (
        _OF_KIND.get(kind)
        or _OF_FAMILY.get(kind.partition(".")[0])
        or _OF_ATTRIBUTES[signature.attributes]
    )
    found = draw(_Draw(random_, random_.random()))
    return {name: found[name] for name in signature.attributes}

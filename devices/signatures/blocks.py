"""Blocks: operations between parts of activations, each of which is a tensor of its own.

A block of a convolution or of a linear layer goes from some input channels (or features) to some
output channels. Its attributes are those of an ordinary operation with so many channels, and
``continued``: 1 if it goes on with the sum that the block before has written. In a chain of blocks,
every sum is made in the order of the whole operation, so that a chain has the whole one's bits,
wherever it is cut:

- ``forward``: a chain over all parts of the input, in their order, for a part of the output. Every
  element of the output is one sum, which begins with the bias and has a term for each input channel
  and, within a channel, each tap. Only the first block has a bias.
- ``input_gradient``: a chain over all parts of the output gradient, in their order, for a part of
  the input. Every element is one sum over output channels and, within a channel, taps.
- ``columns_gradient``: the same for convolutions with strides, or whose result is smaller than the
  image for another reason (:func:`devices.signatures.parts.needs_columns`). Every element is one
  sum over output channels for an input channel, a tap and an output position. After the last block,
  ``conv2d_part.fold`` adds up the windows, with the part's input channels as all channels.

The parameter gradient of a block is that of an ordinary operation on the two parts. Operations that
treat channels or heads apart need no blocks: on some channels, the ordinary operation has the bits
of that on all. Two channels are needed for that by depthwise convolutions, of which a single one is
an ordinary convolution (``depthwise_part`` needs one only), and by sums over rows for each feature
(``broadcast_add.addend_gradient``, ``broadcast_multiply.factor_gradient``, ``reduce.forward``).

Cross entropy over parts of the classes reads the logits of ``channels`` classes from ``first`` on:

- ``maximum``: a chain that leaves each row's largest logit, and the logit of its label.
- ``sum``: a chain that leaves each row's sums of exponentials: class c belongs to sum c mod 32, in
  the order of the classes.
- ``loss``: the mean over rows, in their order, from the state that the two chains have left.
- ``input_gradient``: the gradient of a part of the logits, in any order of the parts.

Cross entropy with weights of classes and labels that are ignored, without smoothing, has a ``loss``
and an ``input_gradient`` of its own, after the same chains.
"""

from __future__ import annotations

import math

from devices.signatures import matrices, windows
from devices.signatures.base import (
    ELEMENT_BYTES,
    Attributes,
    Operand,
    OperationError,
    Signature,
    define,
    indices,
    matrix,
)
from devices.signatures.parts import (
    PART,
    before,
    columns,
    require_gathered,
    require_range,
    require_ungrouped,
)

KINDS: dict[str, Signature] = {}

_SUMS = 32
"""Sums of exponentials of a row (``JW_LANES``)."""

_COLUMNS = "conv2d_block.columns_gradient"

_EVEN = 8
"""Blocks of more channels have a multiple of this many: matrix products are then faster."""


def block_shape(
    weight: tuple[int, ...], most_bytes: int, *, most_inputs: int | None = None
) -> tuple[int, int]:
    """Output and input channels of blocks of at most so many bytes of a weight.

    A block unfolds its part of the image, or of the output gradient, for the products with its own
    channels alone. A forward pass shares that work among output channels, an input gradient among
    input channels, so that blocks with about as many of both cost least (``benchmarks.slices``). Of
    blocks with at least two thirds as many channels of a side as a square one has, or all, these
    shapes make the fewest blocks, then the fewest sizes of blocks, and are then most square.

    Args:
        weight: Shape of the whole weight: output channels, input channels and window.
        most_bytes: Most bytes of a block; it has at least one channel of each side.
        most_inputs: Most input channels, if these are limited.

    Returns:
        Number of output channels and of input channels.
    """
    outputs, inputs, *window = weight
    pairs = max(1, most_bytes // (ELEMENT_BYTES * math.prod(window)))
    side = math.isqrt(pairs)
    least = min(side * 2 // 3, _even_down(side))
    most = min(inputs, most_inputs or inputs)
    rows = {_evenly(outputs, count) for count in range(1, min(outputs, pairs) + 1)}
    shapes = [(row, _evenly(inputs, min(most, pairs // row))) for row in rows]

    def rank(shape: tuple[int, int]) -> tuple[int, int, float, int]:
        whole = tuple(zip((outputs, inputs), shape, strict=True))
        blocks = math.prod(-(-size // part) for size, part in whole)
        sizes = math.prod(2 if size % part else 1 for size, part in whole)
        return blocks, sizes, abs(math.log(shape[0] / shape[1])), shape[0]

    square = [
        each for each in shapes if each[0] >= min(outputs, least) and each[1] >= min(most, least)
    ]
    return min(square or shapes, key=rank)


def _evenly(whole: int, most: int) -> int:
    """Size of parts of at most so many channels, of which the last is not much smaller."""
    most = most if most == whole else _even_down(most)
    part = -(-whole // -(-whole // most))
    even = -(-part // _EVEN) * _EVEN
    return even if part > _EVEN and even <= most else part


def _even_down(channels: int) -> int:
    return channels // _EVEN * _EVEN or channels


def _define_block(kind: str, whole_kind: str) -> None:
    family = kind.partition(".")[0]
    whole = {**windows.KINDS, **matrices.KINDS}[whole_kind]

    def writes(a: Attributes) -> tuple[Operand, ...]:
        if kind == _COLUMNS:
            return (columns(a, "columns", a["in_channels"]),)
        return whole.writes(a)

    def reads(a: Attributes) -> tuple[Operand, ...]:
        require_ungrouped(family, a)
        require_gathered(kind, a)
        if kind.endswith(".forward") and a["continued"] and a["bias"]:
            raise OperationError(f"{kind}: bias=1 and continued=1; the first block has the bias")
        return (*whole.reads(a), *(map(before, writes(a)) if a["continued"] else ()))

    written = {"forward": "output", "columns_gradient": "columns"}.get(
        kind.partition(".")[2], "input_gradient"
    )
    define(
        KINDS,
        kind,
        (*whole.attributes, "continued"),
        reads,
        writes,
        whole.work_flop,
        in_place={written: f"{written}_before"},
        continues=True,
    )


for _family in ("conv2d", "linear"):
    for _entry in ("forward", "input_gradient"):
        _define_block(f"{_family}_block.{_entry}", f"{_family}.{_entry}")
_define_block(_COLUMNS, "conv2d.input_gradient")


_CLASSES = ("rows", "classes", *PART)


def _logits(a: Attributes, role: str = "logits") -> Operand:
    require_range("cross_entropy_block", a, (*PART, "classes"))
    return matrix(a, role, "rows", PART[1])


def _labels(a: Attributes) -> Operand:
    return indices(a, "labels", "classes")


def _of_rows(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["rows"],))


def _sums(a: Attributes) -> Operand:
    return Operand("sums", (a["rows"], _SUMS), "positive")


def _extremes(a: Attributes) -> tuple[Operand, ...]:
    return _of_rows(a, "maximum"), _of_rows(a, "label_logit")


def _continued(a: Attributes, *written: Operand) -> tuple[Operand, ...]:
    return tuple(map(before, written)) if a[PART[0]] else ()


define(
    KINDS,
    "cross_entropy_block.maximum",
    _CLASSES,
    lambda a: (_logits(a), _labels(a), *_continued(a, *_extremes(a))),
    _extremes,
    lambda a: _logits(a).elements,
    in_place={"maximum": "maximum_before", "label_logit": "label_logit_before"},
    continues=True,
)
define(
    KINDS,
    "cross_entropy_block.sum",
    _CLASSES,
    lambda a: (_logits(a), _of_rows(a, "maximum"), *_continued(a, _sums(a))),
    lambda a: (_sums(a),),
    lambda a: 11 * _logits(a).elements,
    in_place={"sums": "sums_before"},
    continues=True,
)
define(
    KINDS,
    "cross_entropy_block.loss",
    ("rows",),
    lambda a: (*_extremes(a), _sums(a)),
    lambda _: (Operand("loss", (1,)),),
    lambda a: _sums(a).elements + 20 * a["rows"],
    scalars=("share",),
)
define(
    KINDS,
    "cross_entropy_block.input_gradient",
    _CLASSES,
    lambda a: (_logits(a), _labels(a), _of_rows(a, "maximum"), _sums(a)),
    lambda a: (_logits(a, "logits_gradient"),),
    lambda a: 12 * _logits(a).elements,
    in_place={"logits_gradient": "logits"},
    scalars=("share",),
)

_WEIGHTED = "weighted_cross_entropy_block"


def _weights(a: Attributes) -> Operand:
    return Operand("class_weights", (a["classes"],), "positive")


define(
    KINDS,
    f"{_WEIGHTED}.loss",
    ("rows", "classes", "by_weight"),
    lambda a: (*_extremes(a), _sums(a), _labels(a), _weights(a)),
    lambda _: (Operand("loss", (1,)),),
    lambda a: _sums(a).elements + 20 * a["rows"],
    scalars=("share", "ignored"),
)
define(
    KINDS,
    f"{_WEIGHTED}.input_gradient",
    ("rows", "classes", "by_weight", *PART),
    lambda a: (_logits(a), _labels(a), _of_rows(a, "maximum"), _sums(a), _weights(a)),
    lambda a: (_logits(a, "logits_gradient"),),
    lambda a: 12 * _logits(a).elements,
    in_place={"logits_gradient": "logits"},
    scalars=("share", "ignored"),
)

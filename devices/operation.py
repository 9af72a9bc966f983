"""OpSpec: one operation with its shapes, the key that profiles, graphs and kernels share.

A *kind* is ``family.entry``: ``conv2d.forward``, ``conv2d.input_gradient``, ``sgd.update``.
Each kind has a signature: the integer attributes that fix its shapes, and the operands it
reads and writes, in the order in which the C kernels take them. Everything else that can be
said of an operation without running it (bytes moved, work) follows from these.

Layouts: images are NCHW, matrices row-major, sequences [batch, sequence, features] with the
heads side by side inside a row. Every element has four bytes (float32, or int32 for indices).
Real-valued parameters of an operation (learning rate, dropout probability, epsilon) change no
cost and are therefore no part of the key; the kernels take them as *scalars*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

ELEMENT_BYTES = 4

Attributes: TypeAlias = Mapping[str, int]
Fill: TypeAlias = Literal["signed", "positive", "index"]


class OperationError(ValueError):
    """A kind, an attribute or a key that names no operation; the message says what is allowed."""


@dataclass(frozen=True)
class Operand:
    """One tensor that an operation reads or writes.

    ``fill`` says which values are valid input when the operation is measured by itself:
    any (``signed``), greater than zero (``positive``), or int32 below ``index_bound``.
    """

    role: str
    shape: tuple[int, ...]
    fill: Fill = "signed"
    index_bound: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * ELEMENT_BYTES


@dataclass(frozen=True)
class Signature:
    """What a kind takes. ``in_place`` maps a written role to the read role whose bytes it may take
    over; ``mutates`` is true where it always does, and the operation can happen only once."""

    attributes: tuple[str, ...]
    reads: Callable[[Attributes], tuple[Operand, ...]]
    writes: Callable[[Attributes], tuple[Operand, ...]]
    work_flop: Callable[[Attributes], int]
    in_place: Mapping[str, str]
    scalars: tuple[str, ...]
    mutates: bool


@dataclass(frozen=True)
class OpSpec:
    """One operation of a training step: a kind and its attributes in the signature's order.

    Build one with :meth:`of` or :meth:`parse`; both raise :class:`OperationError`.
    """

    kind: str
    values: tuple[int, ...]

    @classmethod
    def of(cls, kind: str, **attributes: int) -> OpSpec:
        signature = _signature(kind)
        if set(attributes) != set(signature.attributes):
            wrong = sorted(set(attributes) ^ set(signature.attributes))
            raise OperationError(
                f"{kind}: attributes {', '.join(wrong)} missing or unknown;"
                f" it takes {', '.join(signature.attributes)}"
            )
        for name, value in attributes.items():
            lowest = 0 if name in _MAY_BE_ZERO else 1
            if value < lowest:
                raise OperationError(f"{kind}: {name} is {value}, it must be at least {lowest}")
        spec = cls(kind, tuple(attributes[name] for name in signature.attributes))
        for operand in (*spec.reads, *spec.writes):
            if operand.elements < 1:
                raise OperationError(f"{spec.key}: {operand.role} has shape {operand.shape}")
        return spec

    @classmethod
    def parse(cls, key: str) -> OpSpec:
        """The inverse of :attr:`key`."""
        kind, *pairs = key.split()
        attributes: dict[str, int] = {}
        for pair in pairs:
            name, _, value = pair.partition("=")
            try:
                attributes[name] = int(value)
            except ValueError:
                raise OperationError(f"{key!r}: {pair!r} is not of the form name=integer") from None
        return cls.of(kind, **attributes)

    @property
    def family(self) -> str:
        return self.kind.partition(".")[0]

    @property
    def signature(self) -> Signature:
        return SIGNATURES[self.kind]

    @cached_property
    def attributes(self) -> dict[str, int]:
        return dict(zip(self.signature.attributes, self.values, strict=True))

    @cached_property
    def key(self) -> str:
        return " ".join(
            (self.kind, *(f"{name}={value}" for name, value in self.attributes.items()))
        )

    @cached_property
    def reads(self) -> tuple[Operand, ...]:
        return self.signature.reads(self.attributes)

    @cached_property
    def writes(self) -> tuple[Operand, ...]:
        return self.signature.writes(self.attributes)

    @property
    def work_flop(self) -> int:
        """Floating-point operations by the textbook count (a multiply-add is two)."""
        return self.signature.work_flop(self.attributes)

    @property
    def moved_bytes(self) -> int:
        """Bytes read plus bytes written, each operand once."""
        return sum(operand.bytes for operand in (*self.reads, *self.writes))

    def __str__(self) -> str:
        return self.key


# Attributes that may be zero: paddings and flags. All others are sizes.
_MAY_BE_ZERO = frozenset({"pad_top", "pad_bottom", "pad_left", "pad_right", "bias"})

SIGNATURES: dict[str, Signature] = {}


def _signature(kind: str) -> Signature:
    if kind not in SIGNATURES:
        import difflib

        near = difflib.get_close_matches(kind, SIGNATURES, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(SIGNATURES)}"
        raise OperationError(f"no operation of kind {kind!r}{hint}")
    return SIGNATURES[kind]


_Operands: TypeAlias = Callable[[Attributes], tuple[Operand, ...]]


def _define(
    kind: str,
    attributes: tuple[str, ...],
    reads: _Operands,
    writes: _Operands,
    work_flop: Callable[[Attributes], int],
    *,
    in_place: Mapping[str, str] | None = None,
    scalars: tuple[str, ...] = (),
    mutates: bool = False,
) -> None:
    SIGNATURES[kind] = Signature(
        attributes, reads, writes, work_flop, in_place or {}, scalars, mutates
    )


# --- convolution ------------------------------------------------------------------------------

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
            f"conv2d: groups={a['groups']} divides not both in_channels={a['in_channels']}"
            f" and out_channels={a['out_channels']}"
        )
    per_group = a["in_channels"] // a["groups"]
    return Operand(role, (a["out_channels"], per_group, a["kernel_height"], a["kernel_width"]))


def _bias(a: Attributes, size: str, role: str) -> tuple[Operand, ...]:
    return (Operand(role, (a[size],)),) if a["bias"] else ()


def _conv_flop(a: Attributes) -> int:
    window = _conv_weight(a).elements // a["out_channels"]
    return _conv_output(a).elements * (2 * window + a["bias"])


_define(
    "conv2d.forward",
    _CONV2D,
    lambda a: (_conv_input(a), _conv_weight(a), *_bias(a, "out_channels", "bias")),
    lambda a: (_conv_output(a),),
    _conv_flop,
)
_define(
    "conv2d.input_gradient",
    _CONV2D,
    lambda a: (_conv_output(a, "output_gradient"), _conv_weight(a)),
    lambda a: (_conv_input(a, "input_gradient"),),
    _conv_flop,
)
_define(
    "conv2d.parameter_gradient",
    _CONV2D,
    lambda a: (_conv_input(a), _conv_output(a, "output_gradient")),
    lambda a: (
        _conv_weight(a, "weight_gradient"),
        *_bias(a, "out_channels", "bias_gradient"),
    ),
    _conv_flop,
)

# --- linear -----------------------------------------------------------------------------------

_LINEAR = ("rows", "in_features", "out_features", "bias")


def _matrix(a: Attributes, role: str, rows: str, columns: str) -> Operand:
    return Operand(role, (a[rows], a[columns]))


def _linear_flop(a: Attributes) -> int:
    return a["rows"] * a["out_features"] * (2 * a["in_features"] + a["bias"])


_define(
    "linear.forward",
    _LINEAR,
    lambda a: (
        _matrix(a, "input", "rows", "in_features"),
        _matrix(a, "weight", "out_features", "in_features"),
        *_bias(a, "out_features", "bias"),
    ),
    lambda a: (_matrix(a, "output", "rows", "out_features"),),
    _linear_flop,
)
_define(
    "linear.input_gradient",
    _LINEAR,
    lambda a: (
        _matrix(a, "output_gradient", "rows", "out_features"),
        _matrix(a, "weight", "out_features", "in_features"),
    ),
    lambda a: (_matrix(a, "input_gradient", "rows", "in_features"),),
    _linear_flop,
)
_define(
    "linear.parameter_gradient",
    _LINEAR,
    lambda a: (
        _matrix(a, "input", "rows", "in_features"),
        _matrix(a, "output_gradient", "rows", "out_features"),
    ),
    lambda a: (
        _matrix(a, "weight_gradient", "out_features", "in_features"),
        *_bias(a, "out_features", "bias_gradient"),
    ),
    _linear_flop,
)

# --- normalisation ----------------------------------------------------------------------------
# The statistics that the backward entries need are outputs of the forward entry, so that
# recomputing the forward entry has no side effect; moving the running statistics is an operation
# of its own, which happens once a step.

_BATCH_NORM = ("batch", "channels", "plane")


def _bn_data(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["batch"], a["channels"], a["plane"]))


def _bn_channel(a: Attributes, role: str, fill: Fill = "signed") -> Operand:
    return Operand(role, (a["channels"],), fill)


_define(
    "batch_norm.forward",
    _BATCH_NORM,
    lambda a: (_bn_data(a, "input"), _bn_channel(a, "scale"), _bn_channel(a, "shift")),
    lambda a: (
        _bn_data(a, "output"),
        _bn_channel(a, "mean"),
        _bn_channel(a, "variance", "positive"),
    ),
    lambda a: 7 * _bn_data(a, "input").elements,
    scalars=("epsilon",),
)
_define(
    "batch_norm.parameter_gradient",
    _BATCH_NORM,
    lambda a: (
        _bn_data(a, "input"),
        _bn_data(a, "output_gradient"),
        _bn_channel(a, "mean"),
        _bn_channel(a, "variance", "positive"),
    ),
    lambda a: (_bn_channel(a, "scale_gradient"), _bn_channel(a, "shift_gradient")),
    lambda a: 4 * _bn_data(a, "input").elements,
    scalars=("epsilon",),
)
_define(  # reads the parameter gradients: they are the two sums over a channel that it needs
    "batch_norm.input_gradient",
    _BATCH_NORM,
    lambda a: (
        _bn_data(a, "input"),
        _bn_data(a, "output_gradient"),
        _bn_channel(a, "scale"),
        _bn_channel(a, "mean"),
        _bn_channel(a, "variance", "positive"),
        _bn_channel(a, "scale_gradient"),
        _bn_channel(a, "shift_gradient"),
    ),
    lambda a: (_bn_data(a, "input_gradient"),),
    lambda a: 5 * _bn_data(a, "input").elements,
    in_place={"input_gradient": "output_gradient"},
    scalars=("epsilon",),
)
_define(
    "batch_norm.statistics_update",
    _BATCH_NORM,
    lambda a: (
        _bn_channel(a, "mean"),
        _bn_channel(a, "variance", "positive"),
        _bn_channel(a, "running_mean"),
        _bn_channel(a, "running_variance", "positive"),
    ),
    lambda a: (
        _bn_channel(a, "next_running_mean"),
        _bn_channel(a, "next_running_variance", "positive"),
    ),
    lambda a: 6 * a["channels"],
    in_place={"next_running_mean": "running_mean", "next_running_variance": "running_variance"},
    scalars=("momentum",),
    mutates=True,
)

_LAYER_NORM = ("rows", "features")


def _ln_data(a: Attributes, role: str) -> Operand:
    return _matrix(a, role, "rows", "features")


def _ln_rows(a: Attributes, role: str, fill: Fill = "signed") -> Operand:
    return Operand(role, (a["rows"],), fill)


def _ln_parameter(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["features"],))


_define(
    "layer_norm.forward",
    _LAYER_NORM,
    lambda a: (_ln_data(a, "input"), _ln_parameter(a, "scale"), _ln_parameter(a, "shift")),
    lambda a: (
        _ln_data(a, "output"),
        _ln_rows(a, "mean"),
        _ln_rows(a, "variance", "positive"),
    ),
    lambda a: 7 * _ln_data(a, "input").elements,
    scalars=("epsilon",),
)
_define(
    "layer_norm.input_gradient",
    _LAYER_NORM,
    lambda a: (
        _ln_data(a, "input"),
        _ln_data(a, "output_gradient"),
        _ln_parameter(a, "scale"),
        _ln_rows(a, "mean"),
        _ln_rows(a, "variance", "positive"),
    ),
    lambda a: (_ln_data(a, "input_gradient"),),
    lambda a: 9 * _ln_data(a, "input").elements,
    in_place={"input_gradient": "output_gradient"},
    scalars=("epsilon",),
)
_define(
    "layer_norm.parameter_gradient",
    _LAYER_NORM,
    lambda a: (
        _ln_data(a, "input"),
        _ln_data(a, "output_gradient"),
        _ln_rows(a, "mean"),
        _ln_rows(a, "variance", "positive"),
    ),
    lambda a: (_ln_parameter(a, "scale_gradient"), _ln_parameter(a, "shift_gradient")),
    lambda a: 4 * _ln_data(a, "input").elements,
    scalars=("epsilon",),
)

# --- element by element -----------------------------------------------------------------------

_ELEMENTS = ("elements",)


def _vector(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["elements"],))


def _vectors(*roles: str) -> _Operands:
    return lambda a: tuple(_vector(a, role) for role in roles)


def _per_element(flop: int) -> Callable[[Attributes], int]:
    return lambda a: flop * a["elements"]


def _define_activation(name: str, flop: int, gradient_reads: str) -> None:
    """An activation whose gradient needs its output, or else its input, which then must not be
    overwritten by the forward entry."""
    forward_in_place = {"output": "input"} if gradient_reads == "output" else {}
    _define(
        f"{name}.forward",
        _ELEMENTS,
        _vectors("input"),
        _vectors("output"),
        _per_element(flop),
        in_place=forward_in_place,
    )
    _define(
        f"{name}.input_gradient",
        _ELEMENTS,
        _vectors(gradient_reads, "output_gradient"),
        _vectors("input_gradient"),
        _per_element(flop),
        in_place={"input_gradient": "output_gradient"},
    )


_define_activation("relu", 1, "output")
_define_activation("tanh", 10, "output")
_define_activation("sigmoid", 10, "output")
_define_activation("gelu", 15, "input")

_DROPOUT_SCALARS = ("probability", "seed")
_define(  # the mask is a function of seed and position: nothing is stored, recomputing replays it
    "dropout.forward",
    _ELEMENTS,
    _vectors("input"),
    _vectors("output"),
    _per_element(2),
    in_place={"output": "input"},
    scalars=_DROPOUT_SCALARS,
)
_define(
    "dropout.input_gradient",
    _ELEMENTS,
    _vectors("output_gradient"),
    _vectors("input_gradient"),
    _per_element(2),
    in_place={"input_gradient": "output_gradient"},
    scalars=_DROPOUT_SCALARS,
)
_define(
    "add.forward",
    _ELEMENTS,
    _vectors("left", "right"),
    _vectors("output"),
    _per_element(1),
    in_place={"output": "left"},
)
_define(  # the sum of two gradients that meet at a fork
    "gradient.accumulate",
    _ELEMENTS,
    _vectors("sum", "addend"),
    _vectors("next_sum"),
    _per_element(1),
    in_place={"next_sum": "sum"},
)
for _entry, _source, _target in (
    ("forward", "input", "output"),
    ("input_gradient", "output_gradient", "input_gradient"),
):
    _define(
        f"flatten.{_entry}",
        _ELEMENTS,
        _vectors(_source),
        _vectors(_target),
        lambda _: 0,
        in_place={_target: _source},
    )

# --- pooling ----------------------------------------------------------------------------------

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
    _define(
        f"{_pool}.forward",
        _POOL,
        lambda a: (_pool_input(a),),
        lambda a: (_pool_output(a),),
        _pool_flop,
    )
_define(  # finds the maximum again (the first one in a window) instead of storing where it was
    "max_pool2d.input_gradient",
    _POOL,
    lambda a: (_pool_input(a), _pool_output(a, "output_gradient")),
    lambda a: (_pool_input(a, "input_gradient"),),
    _pool_flop,
)
_define(
    "average_pool2d.input_gradient",
    _POOL,
    lambda a: (_pool_output(a, "output_gradient"),),
    lambda a: (_pool_input(a, "input_gradient"),),
    _pool_flop,
)

_GLOBAL_POOL = ("batch", "channels", "plane")
_define(
    "global_average_pool.forward",
    _GLOBAL_POOL,
    lambda a: (_bn_data(a, "input"),),
    lambda a: (_matrix(a, "output", "batch", "channels"),),
    lambda a: _bn_data(a, "input").elements,
)
_define(
    "global_average_pool.input_gradient",
    _GLOBAL_POOL,
    lambda a: (_matrix(a, "output_gradient", "batch", "channels"),),
    lambda a: (_bn_data(a, "input_gradient"),),
    lambda a: _bn_data(a, "input").elements,
)

# --- concatenation of two tensors along one axis ----------------------------------------------

_CONCAT = ("outer", "left_inner", "right_inner")


def _concat_parts(a: Attributes, suffix: str) -> tuple[Operand, ...]:
    return (
        _matrix(a, "left" + suffix, "outer", "left_inner"),
        _matrix(a, "right" + suffix, "outer", "right_inner"),
    )


def _concat_whole(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["outer"], a["left_inner"] + a["right_inner"]))


_define(
    "concat.forward",
    _CONCAT,
    lambda a: _concat_parts(a, ""),
    lambda a: (_concat_whole(a, "output"),),
    lambda _: 0,
)
_define(
    "concat.input_gradient",
    _CONCAT,
    lambda a: (_concat_whole(a, "output_gradient"),),
    lambda a: _concat_parts(a, "_gradient"),
    lambda _: 0,
)

# --- attention --------------------------------------------------------------------------------
# The two batched matrix products of attention. Query, key, value and context are
# [batch, sequence, heads * head_features]; scores and weights [batch, heads, sequence, sequence].

_ATTENTION = ("batch", "sequence", "heads", "head_features")


def _heads(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["batch"], a["sequence"], a["heads"] * a["head_features"]))


def _square(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["batch"], a["heads"], a["sequence"], a["sequence"]))


def _attention_flop(a: Attributes) -> int:
    return 2 * _square(a, "scores").elements * a["head_features"]


# scores = query · keyᵀ / sqrt(head_features)
_define(
    "attention_scores.forward",
    _ATTENTION,
    lambda a: (_heads(a, "query"), _heads(a, "key")),
    lambda a: (_square(a, "scores"),),
    _attention_flop,
)
_define(
    "attention_scores.query_gradient",
    _ATTENTION,
    lambda a: (_square(a, "scores_gradient"), _heads(a, "key")),
    lambda a: (_heads(a, "query_gradient"),),
    _attention_flop,
)
_define(
    "attention_scores.key_gradient",
    _ATTENTION,
    lambda a: (_square(a, "scores_gradient"), _heads(a, "query")),
    lambda a: (_heads(a, "key_gradient"),),
    _attention_flop,
)
# context = weights · value
_define(
    "attention_context.forward",
    _ATTENTION,
    lambda a: (_square(a, "weights"), _heads(a, "value")),
    lambda a: (_heads(a, "context"),),
    _attention_flop,
)
_define(
    "attention_context.weights_gradient",
    _ATTENTION,
    lambda a: (_heads(a, "context_gradient"), _heads(a, "value")),
    lambda a: (_square(a, "weights_gradient"),),
    _attention_flop,
)
_define(
    "attention_context.value_gradient",
    _ATTENTION,
    lambda a: (_square(a, "weights"), _heads(a, "context_gradient")),
    lambda a: (_heads(a, "value_gradient"),),
    _attention_flop,
)

_SOFTMAX = ("rows", "columns")


def _softmax_data(a: Attributes, role: str) -> Operand:
    return _matrix(a, role, "rows", "columns")


_define(
    "softmax.forward",
    _SOFTMAX,
    lambda a: (_softmax_data(a, "input"),),
    lambda a: (_softmax_data(a, "output"),),
    lambda a: 12 * a["rows"] * a["columns"],
    in_place={"output": "input"},
)
_define(
    "softmax.input_gradient",
    _SOFTMAX,
    lambda a: (_softmax_data(a, "output"), _softmax_data(a, "output_gradient")),
    lambda a: (_softmax_data(a, "input_gradient"),),
    lambda a: 4 * a["rows"] * a["columns"],
    in_place={"input_gradient": "output_gradient"},
)

# --- embedding --------------------------------------------------------------------------------

_EMBEDDING = ("rows", "vocabulary", "features")


def _indices(a: Attributes, role: str, bound: str) -> Operand:
    return Operand(role, (a["rows"],), "index", a[bound])


_define(
    "embedding.forward",
    _EMBEDDING,
    lambda a: (
        _indices(a, "indices", "vocabulary"),
        _matrix(a, "table", "vocabulary", "features"),
    ),
    lambda a: (_matrix(a, "output", "rows", "features"),),
    lambda _: 0,
)
_define(
    "embedding.parameter_gradient",
    _EMBEDDING,
    lambda a: (
        _indices(a, "indices", "vocabulary"),
        _matrix(a, "output_gradient", "rows", "features"),
    ),
    lambda a: (_matrix(a, "table_gradient", "vocabulary", "features"),),
    lambda a: a["rows"] * a["features"],
)

# --- losses (mean over rows, or over elements) ------------------------------------------------

_CROSS_ENTROPY = ("rows", "classes")


def _logits(a: Attributes, role: str = "logits") -> Operand:
    return _matrix(a, role, "rows", "classes")


_define(
    "softmax_cross_entropy.forward",
    _CROSS_ENTROPY,
    lambda a: (_logits(a), _indices(a, "labels", "classes")),
    lambda _: (Operand("loss", (1,)),),
    lambda a: 12 * a["rows"] * a["classes"],
)
_define(
    "softmax_cross_entropy.input_gradient",
    _CROSS_ENTROPY,
    lambda a: (_logits(a), _indices(a, "labels", "classes")),
    lambda a: (_logits(a, "logits_gradient"),),
    lambda a: 12 * a["rows"] * a["classes"],
    in_place={"logits_gradient": "logits"},
)
_define(
    "mean_squared_error.forward",
    _ELEMENTS,
    _vectors("prediction", "target"),
    lambda _: (Operand("loss", (1,)),),
    _per_element(3),
)
_define(
    "mean_squared_error.input_gradient",
    _ELEMENTS,
    _vectors("prediction", "target"),
    _vectors("prediction_gradient"),
    _per_element(2),
    in_place={"prediction_gradient": "prediction"},
)

# --- parameter updates ------------------------------------------------------------------------

_define(
    "sgd.update",
    _ELEMENTS,
    _vectors("parameter", "gradient"),
    _vectors("next_parameter"),
    _per_element(2),
    in_place={"next_parameter": "parameter"},
    scalars=("learning_rate",),
    mutates=True,
)
_define(  # velocity' = momentum · velocity + gradient; parameter' = parameter - rate · velocity'
    "sgd_momentum.update",
    _ELEMENTS,
    _vectors("parameter", "gradient", "velocity"),
    _vectors("next_parameter", "next_velocity"),
    _per_element(4),
    in_place={"next_parameter": "parameter", "next_velocity": "velocity"},
    scalars=("learning_rate", "momentum"),
    mutates=True,
)

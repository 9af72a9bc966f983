"""Activations, dropout, sums, products and copies."""

from __future__ import annotations

from devices.signatures.base import (
    ELEMENTS,
    Attributes,
    Operand,
    OperationError,
    Signature,
    define,
    matrix,
    per_element,
    planes,
    vectors,
)

KINDS: dict[str, Signature] = {}


def _define_activation(
    name: str, flop: int, gradient_reads: str, scalars: tuple[str, ...] = ()
) -> None:
    """Define an activation whose gradient reads its output or its input.

    If the gradient reads the input, the forward entry must not overwrite it.
    """
    forward_in_place = {"output": "input"} if gradient_reads == "output" else {}
    define(
        KINDS,
        f"{name}.forward",
        ELEMENTS,
        vectors("input"),
        vectors("output"),
        per_element(flop),
        in_place=forward_in_place,
        scalars=scalars,
    )
    define(
        KINDS,
        f"{name}.input_gradient",
        ELEMENTS,
        vectors(gradient_reads, "output_gradient"),
        vectors("input_gradient"),
        per_element(flop),
        in_place={"input_gradient": "output_gradient"},
        scalars=scalars,
    )


_define_activation("relu", 1, "output")
_define_activation("leaky_relu", 2, "output", ("slope",))  # slope >= 0: signs are kept
_define_activation("clamp", 2, "output", ("lowest", "highest"))
_define_activation("hard_sigmoid", 4, "output")
_define_activation("hard_swish", 5, "input")
_define_activation("silu", 12, "input")
_define_activation("tanh", 10, "output")
_define_activation("sigmoid", 10, "output")
_define_activation("gelu", 15, "input")

_DROPOUT_SCALARS = ("probability", "seed")
define(  # the mask is a function of seed and position: it is not stored, and recompute repeats it
    KINDS,
    "dropout.forward",
    ELEMENTS,
    vectors("input"),
    vectors("output"),
    per_element(2),
    in_place={"output": "input"},
    scalars=_DROPOUT_SCALARS,
)
define(
    KINDS,
    "dropout.input_gradient",
    ELEMENTS,
    vectors("output_gradient"),
    vectors("input_gradient"),
    per_element(2),
    in_place={"input_gradient": "output_gradient"},
    scalars=_DROPOUT_SCALARS,
)
define(
    KINDS,
    "add.forward",
    ELEMENTS,
    vectors("left", "right"),
    vectors("output"),
    per_element(1),
    in_place={"output": "left"},
)
define(  # the sum of two gradients that meet at a fork
    KINDS,
    "gradient.accumulate",
    ELEMENTS,
    vectors("sum", "addend"),
    vectors("next_sum"),
    per_element(1),
    in_place={"next_sum": "sum"},
)
for _entry, _factors, _product in (
    ("forward", ("left", "right"), "output"),
    ("left_gradient", ("output_gradient", "right"), "left_gradient"),
    ("right_gradient", ("output_gradient", "left"), "right_gradient"),
):
    define(
        KINDS,
        f"multiply.{_entry}",
        ELEMENTS,
        vectors(*_factors),
        vectors(_product),
        per_element(1),
        in_place={_product: _factors[0]},
    )
for _entry, _source, _target in (
    ("forward", "input", "output"),
    ("input_gradient", "output_gradient", "input_gradient"),
):
    define(
        KINDS,
        f"flatten.{_entry}",
        ELEMENTS,
        vectors(_source),
        vectors(_target),
        lambda _: 0,
        in_place={_target: _source},
    )

_CONCAT = ("outer", "left_inner", "right_inner")


def _concat_parts(a: Attributes, suffix: str) -> tuple[Operand, ...]:
    return (
        matrix(a, "left" + suffix, "outer", "left_inner"),
        matrix(a, "right" + suffix, "outer", "right_inner"),
    )


def _concat_whole(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["outer"], a["left_inner"] + a["right_inner"]))


define(
    KINDS,
    "concat.forward",
    _CONCAT,
    lambda a: _concat_parts(a, ""),
    lambda a: (_concat_whole(a, "output"),),
    lambda _: 0,
)
define(
    KINDS,
    "concat.input_gradient",
    _CONCAT,
    lambda a: (_concat_whole(a, "output_gradient"),),
    lambda a: _concat_parts(a, "_gradient"),
    lambda _: 0,
)

_CHANNEL_SCALE = ("batch", "channels", "plane")
define(
    KINDS,
    "channel_scale.forward",
    _CHANNEL_SCALE,
    lambda a: (planes(a, "input"), matrix(a, "scale", "batch", "channels")),
    lambda a: (planes(a, "output"),),
    lambda a: planes(a, "input").elements,
    in_place={"output": "input"},
)
define(  # runs before the input gradient, which may then overwrite the output gradient
    KINDS,
    "channel_scale.scale_gradient",
    _CHANNEL_SCALE,
    lambda a: (planes(a, "input"), planes(a, "output_gradient")),
    lambda a: (matrix(a, "scale_gradient", "batch", "channels"),),
    lambda a: 2 * planes(a, "input").elements,
)
define(
    KINDS,
    "channel_scale.input_gradient",
    _CHANNEL_SCALE,
    lambda a: (planes(a, "output_gradient"), matrix(a, "scale", "batch", "channels")),
    lambda a: (planes(a, "input_gradient"),),
    lambda a: planes(a, "input").elements,
    in_place={"input_gradient": "output_gradient"},
)

_AXES = range(6)
_STRIDED = (
    *("source", "offset"),
    *(f"size{axis}" for axis in _AXES),
    *(f"stride{axis}" for axis in _AXES),
)


def _strided_source(a: Attributes, role: str) -> Operand:
    last = a["offset"] + sum((a[f"size{axis}"] - 1) * a[f"stride{axis}"] for axis in _AXES)
    if last >= a["source"]:
        raise OperationError(
            f"sizes and strides reach element {last} of source={a['source']} elements"
        )
    return Operand(role, (a["source"],))


def _strided_copy(a: Attributes, role: str) -> Operand:
    return Operand(role, tuple(a[f"size{axis}"] for axis in _AXES))


define(  # parts, transposes and repetitions of a tensor
    KINDS,
    "strided_copy.forward",
    _STRIDED,
    lambda a: (_strided_source(a, "input"),),
    lambda a: (_strided_copy(a, "output"),),
    lambda _: 0,
)
define(
    KINDS,
    "strided_copy.input_gradient",
    _STRIDED,
    lambda a: (_strided_copy(a, "output_gradient"),),
    lambda a: (_strided_source(a, "input_gradient"),),
    lambda a: _strided_copy(a, "output_gradient").elements,
)
define(  # the transpose of a strided copy: `source` elements, of which those not written are zero
    KINDS,
    "pad.forward",
    _STRIDED,
    lambda a: (_strided_copy(a, "input"),),
    lambda a: (_strided_source(a, "output"),),
    lambda _: 0,
)
define(
    KINDS,
    "pad.input_gradient",
    _STRIDED,
    lambda a: (_strided_source(a, "output_gradient"),),
    lambda a: (_strided_copy(a, "input_gradient"),),
    lambda _: 0,
)

"""Functions of one tensor, dropout, sums and products of equal shapes, copies."""

from __future__ import annotations

from devices.signatures.base import (
    ELEMENTS,
    Attributes,
    Fill,
    Operand,
    OperationError,
    Signature,
    define,
    matrix,
    per_element,
    vector,
    vectors,
)

KINDS: dict[str, Signature] = {}


def _define_function(
    name: str,
    flop: int,
    gradient_reads: str,
    scalars: tuple[str, ...] = (),
    fill: Fill = "signed",
) -> None:
    """Define a function of one tensor whose gradient reads its output or its input.

    If the gradient reads the input, the forward entry must not overwrite it.
    """
    forward_in_place = {"output": "input"} if gradient_reads == "output" else {}
    define(
        KINDS,
        f"{name}.forward",
        ELEMENTS,
        lambda a: (vector(a, "input", fill),),
        vectors("output"),
        per_element(flop),
        in_place=forward_in_place,
        scalars=scalars,
    )
    define(
        KINDS,
        f"{name}.input_gradient",
        ELEMENTS,
        lambda a: (vector(a, gradient_reads, fill), vector(a, "output_gradient")),
        vectors("input_gradient"),
        per_element(flop),
        in_place={"input_gradient": "output_gradient"},
        scalars=scalars,
    )


_define_function("relu", 1, "output")
_define_function("leaky_relu", 2, "output", ("slope",))  # slope >= 0: signs are kept
_define_function("clamp", 2, "output", ("lowest", "highest"))
_define_function("hard_sigmoid", 4, "output")
_define_function("hard_swish", 5, "input")
_define_function("silu", 12, "input")
_define_function("tanh", 10, "output")
_define_function("sigmoid", 10, "output")
_define_function("gelu", 15, "input")
_define_function("gelu_tanh", 15, "input")
_define_function("elu", 12, "output", ("alpha",))  # alpha > 0: signs are kept
_define_function("softplus", 25, "input")
_define_function("absolute", 1, "input")
_define_function("exponential", 10, "output")
_define_function("logarithm", 12, "input", fill="positive")
_define_function("reciprocal", 2, "output", fill="positive")
_define_function("square", 2, "input")
_define_function("square_root", 2, "output", fill="positive")
_define_function("reciprocal_root", 4, "output", fill="positive")


def _bits(a: Attributes) -> Operand:
    return Operand("bits", (-(-a["elements"] // 32),), "index", 2**31 - 1)


# Functions that also write what their gradient needs of the output, a bit for each element.
for _name, _scalars, _of_gradient in (
    ("relu", (), ()),
    ("leaky_relu", ("slope",), ("slope",)),
    ("clamp", ("lowest", "highest"), ()),
):
    define(
        KINDS,
        f"{_name}_bits.forward",
        ELEMENTS,
        vectors("input"),
        lambda a: (vector(a, "output"), _bits(a)),
        per_element(2),
        in_place={"output": "input"},
        scalars=_scalars,
    )
    define(
        KINDS,
        f"{_name}_bits.input_gradient",
        ELEMENTS,
        lambda a: (_bits(a), vector(a, "output_gradient")),
        vectors("input_gradient"),
        per_element(1),
        in_place={"input_gradient": "output_gradient"},
        scalars=_of_gradient,
    )

for _name in ("page_out", "page_in"):  # what a transfer of a packed tensor costs beside the pages
    define(
        KINDS,
        f"packing.{_name}",
        ELEMENTS,
        vectors("input"),
        vectors("output"),
        per_element(1),
        in_place={"output": "input"},
    )

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
_DROPOUT_PART = ("outer", "inner", "distance", "first")


def _dropped_part(a: Attributes, role: str) -> Operand:
    if a["first"] + a["inner"] > a["distance"]:
        raise OperationError(
            f"dropout_part: first={a['first']} and inner={a['inner']} exceed"
            f" distance={a['distance']}"
        )
    return matrix(a, role, "outer", "inner")


def _define_dropout_part(entry: str, source: str, target: str) -> None:
    define(
        KINDS,
        f"dropout_part.{entry}",
        _DROPOUT_PART,
        lambda a: (_dropped_part(a, source),),
        lambda a: (_dropped_part(a, target),),
        lambda a: 2 * a["outer"] * a["inner"],
        in_place={target: source},
        scalars=_DROPOUT_SCALARS,
    )


# Of a larger tensor: `outer` times `inner` elements, the first of them at `first` and the following
# ones `distance` elements apart. The mask is that of the whole tensor at these positions.
_define_dropout_part("forward", "input", "output")
_define_dropout_part("input_gradient", "output_gradient", "input_gradient")


def _define_dropout_rows(entry: str, source: str, target: str) -> None:
    define(
        KINDS,
        f"dropout_rows.{entry}",
        ("rows", "inner"),
        lambda a: (matrix(a, source, "rows", "inner"),),
        lambda a: (matrix(a, target, "rows", "inner"),),
        lambda a: a["rows"] * a["inner"],
        in_place={target: source},
        scalars=("probability", "factor", "seed"),
    )


# One draw for each row: stochastic depth (Huang et al. 2016), where rows are samples, and dropout
# of channels. The mask is that of ``dropout`` for as many elements as there are rows; what is kept
# is multiplied by the factor.
_define_dropout_rows("forward", "input", "output")
_define_dropout_rows("input_gradient", "output_gradient", "input_gradient")
define(
    KINDS,
    "add.forward",
    ELEMENTS,
    vectors("left", "right"),
    vectors("output"),
    per_element(1),
    in_place={"output": "left"},
    passes=("left", "right"),
)
define(
    KINDS,
    "add_number.forward",
    ELEMENTS,
    vectors("input"),
    vectors("output"),
    per_element(1),
    in_place={"output": "input"},
    scalars=("addend",),
    passes=("input",),
)
for _entry, _source, _target in (
    ("forward", "input", "output"),
    ("input_gradient", "output_gradient", "input_gradient"),
):
    define(
        KINDS,
        f"multiply_number.{_entry}",
        ELEMENTS,
        vectors(_source),
        vectors(_target),
        per_element(1),
        in_place={_target: _source},
        scalars=("factor",),
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

"""Workspace of every kind of operation, as the kernels of ``onboard/`` state it (``*_workspace``).

It follows from an operation's attributes and two constants of the build
(:class:`devices.signatures.tiles.KernelBuild`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from devices.signatures.base import ELEMENT_BYTES, Attributes
from devices.signatures.tiles import (
    Conv,
    KernelBuild,
    Role,
    attention_floats,
    attention_gradient_floats,
    axis_of,
    conv_of,
    convolution_floats,
    depthwise_floats,
    exchanged,
    padded,
    part_of,
)

_ENTRIES: tuple[Role, ...] = ("forward", "input_gradient", "parameter_gradient")

_PLACE_FLOATS = 3
"""Floats of a place in a row that is enlarged."""

KERNEL_BUILDS = (
    *(KernelBuild(columns, is_small=False) for columns in (4, 20, 24, 32)),
    KernelBuild(4, is_small=True),
    *(KernelBuild(0, is_small=small) for small in (False, True)),
)
"""All builds that there can be: every width of panels, small tiles, and those with a BLAS."""


def workspace_bytes(kind: str, attributes: Attributes, build: KernelBuild) -> int:
    """Workspace in bytes that the kernel of an operation needs.

    Args:
        kind: Kind of the operation.
        attributes: Attributes of its signature.
        build: Constants of the build.
    """
    query = _QUERIES.get(kind)
    return 0 if query is None else ELEMENT_BYTES * query(attributes, build)


_Query: TypeAlias = Callable[[Attributes, KernelBuild], int]


def _of_convolution(shape: Callable[[Attributes], Conv], role: Role) -> _Query:
    return lambda a, build: convolution_floats(shape(a), role, build)


def _of_depthwise(role: Role) -> _Query:
    return lambda a, build: depthwise_floats(conv_of(a), role, build)


def _of_product(columns: str, depth: str) -> _Query:
    return lambda a, build: build.matmul(a[columns], a[depth])


def _of_product_stored(rows: str, columns: str, depth: str, transposed: str) -> _Query:
    """The product whose result is stored transposed if an attribute says so."""
    return lambda a, build: build.matmul(a[rows if a[transposed] else columns], a[depth])


def _hidden_weight_gradient(a: Attributes, build: KernelBuild) -> int:
    return build.matmul(a["hidden"], a["steps"] * a["batch"])


def _recurrent_forward(*gates: int) -> _Query:
    return lambda a, build: sum(
        build.prepared(each * a["hidden"], a["hidden"], transposed=True) for each in gates
    )


def _recurrent_gradient(states: int, *gates: int) -> _Query:
    return lambda a, build: (
        states * padded(a["batch"] * a["hidden"])
        + sum(build.prepared(a["hidden"], each * a["hidden"], transposed=False) for each in gates)
    )


def _gru_gradient(a: Attributes, build: KernelBuild) -> int:
    return _recurrent_gradient(1, 2, 1)(a, build) + padded(a["hidden"])


def _maxima(a: Attributes, _: KernelBuild) -> int:
    """Maxima and their positions, of the columns of a row of windows and of the windows."""
    return 2 * (a["in_width"] + axis_of(a, "width", a["pad_left"] + a["pad_right"]).out)


def _distances(a: Attributes, _: KernelBuild) -> int:
    """An integer for each place in a window."""
    return a["kernel_height"] * a["kernel_width"]


def _places(a: Attributes, _: KernelBuild) -> int:
    """Place of each element of a row, and the row between two rows of the input."""
    return _PLACE_FLOATS * a["out_width"] + a["in_width"]


_QUERIES: Mapping[str, _Query] = {
    **{
        f"{family}.{role}": _of_convolution(shape, role)
        for family, shape in (
            ("conv2d", conv_of),
            ("dilated_conv2d", conv_of),
            ("conv2d_part", part_of),
        )
        for role in _ENTRIES
    },
    "conv2d_part.input_gradient": _of_convolution(part_of, "gather"),
    "conv2d_part.columns_gradient": _of_convolution(part_of, "columns"),
    "conv2d_part.fold": _of_convolution(part_of, "fold"),
    "conv2d_block.forward": _of_convolution(part_of, "forward"),
    "conv2d_block.input_gradient": _of_convolution(part_of, "gather"),
    "conv2d_block.columns_gradient": _of_convolution(part_of, "columns"),
    "conv_transpose2d.forward": _of_convolution(exchanged, "input_gradient"),
    "conv_transpose2d.input_gradient": _of_convolution(exchanged, "forward"),
    "conv_transpose2d.parameter_gradient": _of_convolution(exchanged, "parameter_gradient"),
    **{f"depthwise_part.{role}": _of_depthwise(role) for role in _ENTRIES},
    **{
        f"{family}.{entry}": _of_product(*sizes)
        for family, outputs, inputs in (
            ("linear", "out_features", "in_features"),
            ("linear_part", "channels", "inputs"),
            ("linear_block", "out_features", "in_features"),
        )
        for entry, sizes in (
            ("forward", (outputs, inputs)),
            ("input_gradient", (inputs, outputs)),
        )
    },
    "linear.parameter_gradient": _of_product("in_features", "rows"),
    "linear_part.parameter_gradient": _of_product("inputs", "rows"),
    "attention_scores.forward": _of_product("sequence", "head_features"),
    "attention_scores.query_gradient": _of_product("head_features", "sequence"),
    "attention_scores.key_gradient": _of_product("head_features", "sequence"),
    "attention_context.forward": _of_product("head_features", "sequence"),
    "attention_context.weights_gradient": _of_product("sequence", "head_features"),
    "attention_context.value_gradient": _of_product("head_features", "sequence"),
    "attention.forward": attention_floats,
    "attention.input_gradient": attention_gradient_floats,
    "matmul.forward": _of_product("columns", "depth"),
    "matmul.left_gradient": _of_product_stored("rows", "depth", "columns", "left_transposed"),
    "matmul.right_gradient": _of_product_stored("depth", "columns", "rows", "right_transposed"),
    "gru.forward": _recurrent_forward(2, 1),
    "gru.input_gradient": _gru_gradient,
    "lstm.forward": _recurrent_forward(4),
    "lstm.input_gradient": _recurrent_gradient(2, 4),
    "rnn_relu.forward": _recurrent_forward(1),
    "rnn_relu.input_gradient": _recurrent_gradient(1, 1),
    "rnn_tanh.forward": _recurrent_forward(1),
    "rnn_tanh.input_gradient": _recurrent_gradient(1, 1),
    **dict.fromkeys(
        (f"{family}.parameter_gradient" for family in ("gru", "lstm", "rnn_relu", "rnn_tanh")),
        _hidden_weight_gradient,
    ),
    "max_pool2d.input_gradient": _maxima,
    "max_pool2d_places.forward": _maxima,
    "max_pool2d_places.input_gradient": _distances,
    "upsample_bilinear2d.forward": _places,
    "upsample_bilinear2d.input_gradient": _places,
}

"""Axes of operations along which their operands can be cut.

An operand that can be cut is [outer, size, inner]: it has ``size`` channels (or features, or
heads), each with ``inner`` elements that are adjacent in memory, repeated ``outer`` times. A part
of it has some of the channels. Operands of an operation that lie on the same axis are cut at the
same places.

Operations are handled in one of six ways. In one that is *alike*, channels have nothing to do with
each other: each part of its operands is an operation of the same kind on fewer channels. A
*product* (a convolution or a linear layer) sums over the channels of its input: it has blocks, one
for each pair of a part of its output and a part of its input. A *lookup* goes through the parts of
its table's rows, for each part of the features. A *norm* of features goes through the parts of its
input for sums over them, and a cross entropy (*loss*) through those of its logits. An operation
without axes needs its operands whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from devices.operation import Operand, OpSpec

Handling: TypeAlias = Literal["alike", "product", "lookup", "norm", "loss"]


@dataclass(frozen=True)
class Place:
    """Where an operand lies.

    ``axes`` are the operation's axes on which the rows and the columns of the operand lie; most
    operands have no columns. ``sizes`` are their channels. ``outer`` is None if the operand is
    repeated as often as the other operands of the operation are.
    """

    axes: tuple[str, ...]
    sizes: tuple[int | None, ...]
    outer: int | None = 1


@dataclass(frozen=True)
class Axes:
    """How the operands of an operation can be cut.

    ``places`` has those of which a part needs a part, by role; ``copied`` are operands of which
    each part has its own copy; every part needs all others whole. ``counts`` are the attributes
    that count what is cut.
    """

    handling: Handling
    places: Mapping[str, Place]
    counts: tuple[str, ...] = ()
    copied: frozenset[str] = frozenset()


PRODUCTS: Mapping[str, tuple[str, str]] = {
    "conv2d": ("in_channels", "out_channels"),
    "linear": ("in_features", "out_features"),
}
"""Attributes that count channels of input and output, by the families of products."""

EMBEDDINGS = frozenset({"embedding", "embedding_padded"})
"""Families of layers that look up rows of a table."""

_WINDOWS = frozenset(
    {
        *("max_pool2d", "average_pool2d", "global_average_pool"),
        *("upsample_nearest2d", "upsample_bilinear2d"),
    }
)
_NORMS = frozenset({"batch_norm", "batch_norm_frozen"})
_NOT_ALIKE = frozenset(
    {
        *("mean_squared_error", "binary_cross_entropy"),
        *("relu_bits", "leaky_relu_bits", "clamp_bits"),
        "packing",
    }
)
"""Families whose attribute is a number of elements, but whose elements are not independent."""


def axes_of(spec: OpSpec) -> Axes | None:
    """How the operands of an operation can be cut; None if it needs them whole."""
    attributes, family = spec.attributes, spec.family
    if spec.signature.attributes == ("elements",):
        return None if family in _NOT_ALIKE else _elementwise(spec)
    if family in PRODUCTS and attributes.get("groups", 1) == 1:
        return _product(spec)
    if family == "conv2d":
        return _depthwise(spec)
    if family in _WINDOWS or family in _NORMS:
        return _of_channels(spec)
    if family in {"attention_scores", "attention_context"}:
        return _of_heads(spec)
    if family in {"layer_norm", "rms_norm"}:
        return _of_features(spec)
    if family == "group_norm":
        return _of_groups(spec)
    if family == "attention":
        return _of_key_heads(spec)
    if family in EMBEDDINGS:
        return _lookup(spec)
    if family in {"softmax_cross_entropy", "weighted_cross_entropy"}:
        place = Place(("classes",), (attributes["classes"],), attributes["rows"])
        return Axes("loss", {"logits": place, "logits_gradient": place})
    if family == "softmax":
        places = {operand.role: Place(("rows",), (None,), None) for operand in _operands(spec)}
        return Axes("alike", places, ("rows",))
    return None


def _operands(spec: OpSpec) -> tuple[Operand, ...]:
    return (*spec.reads, *spec.writes)


def _elementwise(spec: OpSpec) -> Axes:
    """Elements that are independent; Adam's corrections are numbers for all of them.

    The part of a dropout has whole rows: its mask depends on the places of elements.
    """
    elements = spec.attributes["elements"]
    operands = _operands(spec)
    axes = ("rows",) if spec.family == "dropout" else ("rows", "columns")
    return Axes(
        "alike",
        {
            operand.role: Place(axes, (None,) * len(axes), None)
            for operand in operands
            if operand.elements == elements and not operand.role.endswith("corrections")
        },
        ("elements",),
        frozenset(each.role for each in operands if each.role.endswith("corrections")),
    )


def _product(spec: OpSpec) -> Axes:
    count_in, count_out = PRODUCTS[spec.family]
    a = spec.attributes
    inputs, outputs = a[count_in], a[count_out]
    images = a["batch"] if "batch" in a else a["rows"]
    of_input = Place(("in",), (inputs,), images)
    of_output = Place(("out",), (outputs,), images)
    weight = Place(("out", "in"), (outputs, inputs))
    bias = Place(("out",), (outputs,))
    by_role = {
        **{"input": of_input, "input_gradient": of_input},
        **{"output": of_output, "output_gradient": of_output},
        **{"weight": weight, "weight_gradient": weight},
        **{"bias": bias, "bias_gradient": bias},
    }
    return Axes("product", {each.role: by_role[each.role] for each in _operands(spec)})


def _depthwise(spec: OpSpec) -> Axes | None:
    """A convolution with a group for each channel."""
    a = spec.attributes
    channels = a["groups"]
    if not channels == a["in_channels"] == a["out_channels"]:
        return None
    parameters = {"weight", "weight_gradient", "bias", "bias_gradient"}
    places = {
        operand.role: Place(
            ("channels",), (channels,), 1 if operand.role in parameters else a["batch"]
        )
        for operand in _operands(spec)
    }
    return Axes("alike", places, ("in_channels", "out_channels", "groups"))


def _of_channels(spec: OpSpec) -> Axes:
    """Operands are [batch, channels, …], parameters and statistics [channels]."""
    a = spec.attributes
    places = {
        operand.role: Place(
            ("channels",), (a["channels"],), 1 if len(operand.shape) == 1 else a["batch"]
        )
        for operand in _operands(spec)
    }
    return Axes("alike", places, ("channels",))


def _of_heads(spec: OpSpec) -> Axes:
    """Operands are [batch, sequence, heads · features] or [batch, heads, sequence, sequence]."""
    a = spec.attributes
    places = {}
    for operand in _operands(spec):
        *outer, features = operand.shape
        if len(operand.shape) == 3:
            place = Place(("heads",), (features,), outer[0] * outer[1])
        else:
            place = Place(("heads",), (a["heads"],), a["batch"])
        places[operand.role] = place
    return Axes("alike", places, ("heads",))


def _of_groups(spec: OpSpec) -> Axes:
    """Groups of channels. Operands are [batch, channels, …], parameters [channels]."""
    a = spec.attributes
    places = {
        operand.role: Place(
            ("groups",), (a["groups"],), 1 if len(operand.shape) == 1 else a["batch"]
        )
        for operand in _operands(spec)
    }
    return Axes("alike", places, ("channels", "groups"))


def _of_features(spec: OpSpec) -> Axes:
    """Features of rows; parts of parameters need no sums over them."""
    a = spec.attributes
    places = {
        operand.role: Place(
            ("features",), (a["features"],), 1 if len(operand.shape) == 1 else a["rows"]
        )
        for operand in _operands(spec)
        if operand.role not in {"mean", "variance", "mean_square"}
    }
    is_alike = spec.kind.endswith(".parameter_gradient")
    return Axes("alike" if is_alike else "norm", places, ("features",))


def _of_key_heads(spec: OpSpec) -> Axes | None:
    """Heads of keys, each with the heads of queries that share it.

    None if query, key and value are one operand, if each head has a mask of its own, or if weights
    are dropped: which ones depends on the number of the head.
    """
    a = spec.attributes
    if a["packed"] or a["dropout"] or a["mask_heads"] > 1:
        return None
    places = {}
    for operand in _operands(spec):
        if operand.role != "mask":
            batch, second, *_ = operand.shape
            rows = batch if operand.role == "log_sum_exp" else batch * second
            places[operand.role] = Place(("heads",), (a["key_heads"],), rows)
    return Axes("alike", places, ("heads", "key_heads"))


def _lookup(spec: OpSpec) -> Axes:
    """Operands but the indices: a table [vocabulary, features] and its rows [rows, features]."""
    a = spec.attributes
    table = Place(("vocabulary", "features"), (a["vocabulary"], a["features"]))
    rows = Place(("features",), (a["features"],), a["rows"])
    by_role = {
        **{"table": table, "table_gradient": table},
        **{"output": rows, "output_gradient": rows},
    }
    return Axes(
        "lookup",
        {each.role: by_role[each.role] for each in _operands(spec) if each.role in by_role},
    )

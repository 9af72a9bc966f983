"""Batch norm, layer norm, RMS norm and group norm.

The forward entry outputs the statistics that the backward entries read, so that recomputing it has
no side effect. Updating the running statistics is a separate operation, which runs once a step.
"""

from __future__ import annotations

from devices.signatures.base import (
    Attributes,
    Fill,
    Operand,
    OperationError,
    Signature,
    define,
    matrix,
    planes,
)

KINDS: dict[str, Signature] = {}

_BATCH_NORM = ("batch", "channels", "plane")


def _bn_channel(a: Attributes, role: str, fill: Fill = "signed") -> Operand:
    return Operand(role, (a["channels"],), fill)


define(
    KINDS,
    "batch_norm.forward",
    _BATCH_NORM,
    lambda a: (planes(a, "input"), _bn_channel(a, "scale"), _bn_channel(a, "shift")),
    lambda a: (
        planes(a, "output"),
        _bn_channel(a, "mean"),
        _bn_channel(a, "variance", "positive"),
    ),
    lambda a: 7 * planes(a, "input").elements,
    scalars=("epsilon",),
)
define(
    KINDS,
    "batch_norm.parameter_gradient",
    _BATCH_NORM,
    lambda a: (
        planes(a, "input"),
        planes(a, "output_gradient"),
        _bn_channel(a, "mean"),
        _bn_channel(a, "variance", "positive"),
    ),
    lambda a: (_bn_channel(a, "scale_gradient"), _bn_channel(a, "shift_gradient")),
    lambda a: 4 * planes(a, "input").elements,
    scalars=("epsilon",),
)
define(  # the parameter gradients are the two sums over a channel that this entry reads
    KINDS,
    "batch_norm.input_gradient",
    _BATCH_NORM,
    lambda a: (
        planes(a, "input"),
        planes(a, "output_gradient"),
        _bn_channel(a, "scale"),
        _bn_channel(a, "mean"),
        _bn_channel(a, "variance", "positive"),
        _bn_channel(a, "scale_gradient"),
        _bn_channel(a, "shift_gradient"),
    ),
    lambda a: (planes(a, "input_gradient"),),
    lambda a: 5 * planes(a, "input").elements,
    in_place={"input_gradient": "output_gradient"},
    scalars=("epsilon",),
)
define(
    KINDS,
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

# With statistics that no step changes; every element is then normalised by itself.
define(
    KINDS,
    "batch_norm_frozen.forward",
    _BATCH_NORM,
    lambda a: (
        planes(a, "input"),
        _bn_channel(a, "scale"),
        _bn_channel(a, "shift"),
        _bn_channel(a, "mean"),
        _bn_channel(a, "variance", "positive"),
    ),
    lambda a: (planes(a, "output"),),
    lambda a: 3 * planes(a, "input").elements,
    in_place={"output": "input"},
    scalars=("epsilon",),
)
define(
    KINDS,
    "batch_norm_frozen.parameter_gradient",
    _BATCH_NORM,
    lambda a: (
        planes(a, "input"),
        planes(a, "output_gradient"),
        _bn_channel(a, "mean"),
        _bn_channel(a, "variance", "positive"),
    ),
    lambda a: (_bn_channel(a, "scale_gradient"), _bn_channel(a, "shift_gradient")),
    lambda a: 4 * planes(a, "input").elements,
    scalars=("epsilon",),
)
define(
    KINDS,
    "batch_norm_frozen.input_gradient",
    _BATCH_NORM,
    lambda a: (
        planes(a, "output_gradient"),
        _bn_channel(a, "scale"),
        _bn_channel(a, "variance", "positive"),
    ),
    lambda a: (planes(a, "input_gradient"),),
    lambda a: planes(a, "input").elements,
    in_place={"input_gradient": "output_gradient"},
    scalars=("epsilon",),
)

_LAYER_NORM = ("rows", "features")


def _ln_data(a: Attributes, role: str) -> Operand:
    return matrix(a, role, "rows", "features")


def _ln_rows(a: Attributes, role: str, fill: Fill = "signed") -> Operand:
    return Operand(role, (a["rows"],), fill)


def _ln_parameter(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["features"],))


define(
    KINDS,
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
define(
    KINDS,
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
define(
    KINDS,
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

define(
    KINDS,
    "rms_norm.forward",
    _LAYER_NORM,
    lambda a: (_ln_data(a, "input"), _ln_parameter(a, "scale")),
    lambda a: (_ln_data(a, "output"), _ln_rows(a, "mean_square", "positive")),
    lambda a: 4 * _ln_data(a, "input").elements,
    scalars=("epsilon",),
)
define(
    KINDS,
    "rms_norm.input_gradient",
    _LAYER_NORM,
    lambda a: (
        _ln_data(a, "input"),
        _ln_data(a, "output_gradient"),
        _ln_parameter(a, "scale"),
        _ln_rows(a, "mean_square", "positive"),
    ),
    lambda a: (_ln_data(a, "input_gradient"),),
    lambda a: 7 * _ln_data(a, "input").elements,
    in_place={"input_gradient": "output_gradient"},
    scalars=("epsilon",),
)
define(
    KINDS,
    "rms_norm.parameter_gradient",
    _LAYER_NORM,
    lambda a: (
        _ln_data(a, "input"),
        _ln_data(a, "output_gradient"),
        _ln_rows(a, "mean_square", "positive"),
    ),
    lambda a: (_ln_parameter(a, "scale_gradient"),),
    lambda a: 3 * _ln_data(a, "input").elements,
    scalars=("epsilon",),
)

_GROUP_NORM = ("batch", "channels", "plane", "groups")


def _gn_groups(a: Attributes, role: str, fill: Fill = "signed") -> Operand:
    if a["channels"] % a["groups"]:
        raise OperationError(
            f"group_norm: groups={a['groups']} must divide channels={a['channels']}"
        )
    return Operand(role, (a["batch"], a["groups"]), fill)


define(
    KINDS,
    "group_norm.forward",
    _GROUP_NORM,
    lambda a: (planes(a, "input"), _bn_channel(a, "scale"), _bn_channel(a, "shift")),
    lambda a: (
        planes(a, "output"),
        _gn_groups(a, "mean"),
        _gn_groups(a, "variance", "positive"),
    ),
    lambda a: 7 * planes(a, "input").elements,
    scalars=("epsilon",),
)
define(
    KINDS,
    "group_norm.input_gradient",
    _GROUP_NORM,
    lambda a: (
        planes(a, "input"),
        planes(a, "output_gradient"),
        _bn_channel(a, "scale"),
        _gn_groups(a, "mean"),
        _gn_groups(a, "variance", "positive"),
    ),
    lambda a: (planes(a, "input_gradient"),),
    lambda a: 9 * planes(a, "input").elements,
    in_place={"input_gradient": "output_gradient"},
    scalars=("epsilon",),
)
define(
    KINDS,
    "group_norm.parameter_gradient",
    _GROUP_NORM,
    lambda a: (
        planes(a, "input"),
        planes(a, "output_gradient"),
        _gn_groups(a, "mean"),
        _gn_groups(a, "variance", "positive"),
    ),
    lambda a: (_bn_channel(a, "scale_gradient"), _bn_channel(a, "shift_gradient")),
    lambda a: 5 * planes(a, "input").elements,
    scalars=("epsilon",),
)

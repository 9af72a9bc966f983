"""Losses (mean over rows, or over elements) and parameter updates."""

from __future__ import annotations

from devices.signatures.base import (
    ELEMENTS,
    Attributes,
    Operand,
    Signature,
    define,
    indices,
    matrix,
    per_element,
    vectors,
)

KINDS: dict[str, Signature] = {}

_CROSS_ENTROPY = ("rows", "classes")


def _logits(a: Attributes, role: str = "logits") -> Operand:
    return matrix(a, role, "rows", "classes")


define(
    KINDS,
    "softmax_cross_entropy.forward",
    _CROSS_ENTROPY,
    lambda a: (_logits(a), indices(a, "labels", "classes")),
    lambda _: (Operand("loss", (1,)),),
    lambda a: 12 * a["rows"] * a["classes"],
)
define(
    KINDS,
    "softmax_cross_entropy.input_gradient",
    _CROSS_ENTROPY,
    lambda a: (_logits(a), indices(a, "labels", "classes")),
    lambda a: (_logits(a, "logits_gradient"),),
    lambda a: 12 * a["rows"] * a["classes"],
    in_place={"logits_gradient": "logits"},
)
define(
    KINDS,
    "mean_squared_error.forward",
    ELEMENTS,
    vectors("prediction", "target"),
    lambda _: (Operand("loss", (1,)),),
    per_element(3),
)
define(
    KINDS,
    "mean_squared_error.input_gradient",
    ELEMENTS,
    vectors("prediction", "target"),
    vectors("prediction_gradient"),
    per_element(2),
    in_place={"prediction_gradient": "prediction"},
)

define(
    KINDS,
    "sgd.update",
    ELEMENTS,
    vectors("parameter", "gradient"),
    vectors("next_parameter"),
    per_element(2),
    in_place={"next_parameter": "parameter"},
    scalars=("learning_rate",),
    mutates=True,
)
define(  # velocity' = momentum · velocity + gradient; parameter' = parameter - rate · velocity'
    KINDS,
    "sgd_momentum.update",
    ELEMENTS,
    vectors("parameter", "gradient", "velocity"),
    vectors("next_parameter", "next_velocity"),
    per_element(4),
    in_place={"next_parameter": "parameter", "next_velocity": "velocity"},
    scalars=("learning_rate", "momentum"),
    mutates=True,
)

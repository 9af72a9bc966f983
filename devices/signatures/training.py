"""Losses (mean over rows, or over elements) and parameter updates."""

from __future__ import annotations

from devices.signatures.base import (
    ELEMENTS,
    Attributes,
    Operand,
    Operands,
    Signature,
    define,
    indices,
    matrix,
    per_element,
    vector,
    vectors,
)

KINDS: dict[str, Signature] = {}

_CROSS_ENTROPY = ("rows", "classes")

_SHARE = ("share",)
"""Share of a part of a batch in the loss of the whole batch; 1 where the batch is not split."""


def _logits(a: Attributes, role: str = "logits") -> Operand:
    return matrix(a, role, "rows", "classes")


define(
    KINDS,
    "softmax_cross_entropy.forward",
    _CROSS_ENTROPY,
    lambda a: (_logits(a), indices(a, "labels", "classes")),
    lambda _: (Operand("loss", (1,)),),
    lambda a: 12 * a["rows"] * a["classes"],
    scalars=_SHARE,
)
define(
    KINDS,
    "softmax_cross_entropy.input_gradient",
    _CROSS_ENTROPY,
    lambda a: (_logits(a), indices(a, "labels", "classes")),
    lambda a: (_logits(a, "logits_gradient"),),
    lambda a: 12 * a["rows"] * a["classes"],
    in_place={"logits_gradient": "logits"},
    scalars=_SHARE,
)


def _weighted(a: Attributes) -> tuple[Operand, ...]:
    weights = Operand("class_weights", (a["classes"],), "positive")
    return _logits(a), indices(a, "labels", "classes"), weights


_WEIGHTED = (*_CROSS_ENTROPY, "by_weight")
_WEIGHTED_SCALARS = ("share", "smoothing", "ignored")
# Rows whose label is ``ignored`` do not count. The sum over rows is divided by the weights of their
# labels (``by_weight``), or by the number of all rows.
define(
    KINDS,
    "weighted_cross_entropy.forward",
    _WEIGHTED,
    _weighted,
    lambda _: (Operand("loss", (1,)),),
    lambda a: 14 * a["rows"] * a["classes"],
    scalars=_WEIGHTED_SCALARS,
)
define(
    KINDS,
    "weighted_cross_entropy.input_gradient",
    _WEIGHTED,
    _weighted,
    lambda a: (_logits(a, "logits_gradient"),),
    lambda a: 14 * a["rows"] * a["classes"],
    in_place={"logits_gradient": "logits"},
    scalars=_WEIGHTED_SCALARS,
)
define(
    KINDS,
    "mean_squared_error.forward",
    ELEMENTS,
    vectors("prediction", "target"),
    lambda _: (Operand("loss", (1,)),),
    per_element(3),
    scalars=_SHARE,
)
define(
    KINDS,
    "mean_squared_error.input_gradient",
    ELEMENTS,
    vectors("prediction", "target"),
    vectors("prediction_gradient"),
    per_element(2),
    in_place={"prediction_gradient": "prediction"},
    scalars=_SHARE,
)
define(  # of the sigmoid of the logits
    KINDS,
    "binary_cross_entropy.forward",
    ELEMENTS,
    vectors("logits", "target"),
    lambda _: (Operand("loss", (1,)),),
    per_element(25),
    scalars=_SHARE,
)
define(
    KINDS,
    "binary_cross_entropy.input_gradient",
    ELEMENTS,
    vectors("logits", "target"),
    vectors("logits_gradient"),
    per_element(12),
    in_place={"logits_gradient": "logits"},
    scalars=_SHARE,
)

define(
    KINDS,
    "sgd.update",
    ELEMENTS,
    vectors("parameter", "gradient"),
    vectors("next_parameter"),
    per_element(2),
    in_place={"next_parameter": "parameter"},
    scalars=("learning_rate", "weight_decay"),
    mutates=True,
)
# velocity' = momentum · velocity + gradient, where the decay of the weight is part of the gradient.
# parameter' = parameter - rate · velocity', and of Nesterov's (as Sutskever et al. 2013 have it)
# parameter - rate · (momentum · velocity' + gradient).
for _kind, _flop in (("sgd_momentum.update", 4), ("sgd_nesterov.update", 6)):
    define(
        KINDS,
        _kind,
        ELEMENTS,
        vectors("parameter", "gradient", "velocity"),
        vectors("next_parameter", "next_velocity"),
        per_element(_flop),
        in_place={"next_parameter": "parameter", "next_velocity": "velocity"},
        scalars=("learning_rate", "momentum", "weight_decay"),
        mutates=True,
    )

_MOMENTS = ("first_moment", "second_moment")


def _adam_operands(prefix: str) -> Operands:
    """Adam's state; ``corrections`` are 1 minus the moments' decay to the power of the steps."""

    def operands(a: Attributes) -> tuple[Operand, ...]:
        moments = (Operand(prefix + role, (a["elements"],), "positive") for role in _MOMENTS)
        return (*moments, Operand(prefix + "corrections", (2,), "positive"))

    return operands


# Adam with a decay of weights in the gradient (gradient_decay; Kingma and Ba 2015) or apart from it
# (weight_decay; Loshchilov and Hutter 2019). first_rate and second_rate are 1 - beta.
define(
    KINDS,
    "adam.update",
    ELEMENTS,
    lambda a: (vector(a, "parameter"), vector(a, "gradient"), *_adam_operands("")(a)),
    lambda a: (vector(a, "next_parameter"), *_adam_operands("next_")(a)),
    per_element(14),
    in_place={f"next_{role}": role for role in ("parameter", *_MOMENTS, "corrections")},
    scalars=(
        "learning_rate",
        "first_rate",
        "second_rate",
        "epsilon",
        "weight_decay",
        "gradient_decay",
    ),
    mutates=True,
)

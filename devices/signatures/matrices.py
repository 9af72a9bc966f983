"""Linear layers, embedding and attention."""

from __future__ import annotations

from devices.signatures.base import Attributes, Operand, Signature, bias, define, indices, matrix

KINDS: dict[str, Signature] = {}

_LINEAR = ("rows", "in_features", "out_features", "bias")


def _linear_flop(a: Attributes) -> int:
    return a["rows"] * a["out_features"] * (2 * a["in_features"] + a["bias"])


define(
    KINDS,
    "linear.forward",
    _LINEAR,
    lambda a: (
        matrix(a, "input", "rows", "in_features"),
        matrix(a, "weight", "out_features", "in_features"),
        *bias(a, "out_features", "bias"),
    ),
    lambda a: (matrix(a, "output", "rows", "out_features"),),
    _linear_flop,
)
define(
    KINDS,
    "linear.input_gradient",
    _LINEAR,
    lambda a: (
        matrix(a, "output_gradient", "rows", "out_features"),
        matrix(a, "weight", "out_features", "in_features"),
    ),
    lambda a: (matrix(a, "input_gradient", "rows", "in_features"),),
    _linear_flop,
)
define(
    KINDS,
    "linear.parameter_gradient",
    _LINEAR,
    lambda a: (
        matrix(a, "input", "rows", "in_features"),
        matrix(a, "output_gradient", "rows", "out_features"),
    ),
    lambda a: (
        matrix(a, "weight_gradient", "out_features", "in_features"),
        *bias(a, "out_features", "bias_gradient"),
    ),
    _linear_flop,
)

_EMBEDDING = ("rows", "vocabulary", "features")


define(
    KINDS,
    "embedding.forward",
    _EMBEDDING,
    lambda a: (
        indices(a, "indices", "vocabulary"),
        matrix(a, "table", "vocabulary", "features"),
    ),
    lambda a: (matrix(a, "output", "rows", "features"),),
    lambda _: 0,
)
define(
    KINDS,
    "embedding.parameter_gradient",
    _EMBEDDING,
    lambda a: (
        indices(a, "indices", "vocabulary"),
        matrix(a, "output_gradient", "rows", "features"),
    ),
    lambda a: (matrix(a, "table_gradient", "vocabulary", "features"),),
    lambda a: a["rows"] * a["features"],
)


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
define(
    KINDS,
    "attention_scores.forward",
    _ATTENTION,
    lambda a: (_heads(a, "query"), _heads(a, "key")),
    lambda a: (_square(a, "scores"),),
    _attention_flop,
)
define(
    KINDS,
    "attention_scores.query_gradient",
    _ATTENTION,
    lambda a: (_square(a, "scores_gradient"), _heads(a, "key")),
    lambda a: (_heads(a, "query_gradient"),),
    _attention_flop,
)
define(
    KINDS,
    "attention_scores.key_gradient",
    _ATTENTION,
    lambda a: (_square(a, "scores_gradient"), _heads(a, "query")),
    lambda a: (_heads(a, "key_gradient"),),
    _attention_flop,
)
# context = weights · value
define(
    KINDS,
    "attention_context.forward",
    _ATTENTION,
    lambda a: (_square(a, "weights"), _heads(a, "value")),
    lambda a: (_heads(a, "context"),),
    _attention_flop,
)
define(
    KINDS,
    "attention_context.weights_gradient",
    _ATTENTION,
    lambda a: (_heads(a, "context_gradient"), _heads(a, "value")),
    lambda a: (_square(a, "weights_gradient"),),
    _attention_flop,
)
define(
    KINDS,
    "attention_context.value_gradient",
    _ATTENTION,
    lambda a: (_square(a, "weights"), _heads(a, "context_gradient")),
    lambda a: (_heads(a, "value_gradient"),),
    _attention_flop,
)

_SOFTMAX = ("rows", "columns")


def _softmax_data(a: Attributes, role: str) -> Operand:
    return matrix(a, role, "rows", "columns")


define(
    KINDS,
    "softmax.forward",
    _SOFTMAX,
    lambda a: (_softmax_data(a, "input"),),
    lambda a: (_softmax_data(a, "output"),),
    lambda a: 12 * a["rows"] * a["columns"],
    in_place={"output": "input"},
)
define(
    KINDS,
    "softmax.input_gradient",
    _SOFTMAX,
    lambda a: (_softmax_data(a, "output"), _softmax_data(a, "output_gradient")),
    lambda a: (_softmax_data(a, "input_gradient"),),
    lambda a: 4 * a["rows"] * a["columns"],
    in_place={"input_gradient": "output_gradient"},
)

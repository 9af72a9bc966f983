"""Linear layers, embedding and attention."""

from __future__ import annotations

from devices.signatures.base import (
    Attributes,
    Operand,
    OperationError,
    Signature,
    bias,
    define,
    indices,
    matrix,
)

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


def _define_embedding(family: str, attributes: tuple[str, ...]) -> None:
    define(
        KINDS,
        f"{family}.forward",
        attributes,
        lambda a: (
            indices(a, "indices", "vocabulary"),
            matrix(a, "table", "vocabulary", "features"),
        ),
        lambda a: (matrix(a, "output", "rows", "features"),),
        lambda _: 0,
    )
    define(
        KINDS,
        f"{family}.parameter_gradient",
        attributes,
        lambda a: (
            indices(a, "indices", "vocabulary"),
            matrix(a, "output_gradient", "rows", "features"),
        ),
        lambda a: (matrix(a, "table_gradient", "vocabulary", "features"),),
        lambda a: a["rows"] * a["features"],
    )


_define_embedding("embedding", _EMBEDDING)
_define_embedding("embedding_padded", (*_EMBEDDING, "padding_index"))  # its row has no gradient


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

# Attention of all heads as one operation, computed in tiles (Dao et al. 2022, FlashAttention), so
# that no matrix of weights is in memory. Queries and the output are [batch, queries, heads *
# head_features], keys and values [batch, keys, key_heads * head_features]; ``log_sum_exp`` has a
# number for each row of scores. ``causal``: query i attends to keys 0 to i. ``dropout``: weights
# are dropped, with the mask that ``dropout.forward`` has for [batch, heads, queries, keys]. A mask
# is added to the scores; it has ``mask_batch`` x ``mask_heads`` x ``mask_queries`` rows of keys,
# each either 1 or the whole size, or all 0 if there is none. ``packed``: query, key and value are
# side by side in the rows of one operand, as after one linear layer.

_FUSED = (
    *("batch", "queries", "keys", "heads", "key_heads", "head_features", "causal", "dropout"),
    "packed",
    *("mask_batch", "mask_heads", "mask_queries"),
)
_FUSED_SCALARS = ("scale", "probability", "seed")


def _fused_queries(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["batch"], a["queries"], a["heads"] * a["head_features"]))


def _fused_keys(a: Attributes, role: str) -> Operand:
    if a["heads"] % a["key_heads"]:
        raise OperationError(
            f"attention: heads={a['heads']} is not a multiple of key_heads={a['key_heads']}"
        )
    return Operand(role, (a["batch"], a["keys"], a["key_heads"] * a["head_features"]))


def _log_sum_exp(a: Attributes) -> Operand:
    return Operand("log_sum_exp", (a["batch"], a["heads"], a["queries"]))


def _mask(a: Attributes) -> tuple[Operand, ...]:
    sizes = tuple(a[f"mask_{axis}"] for axis in ("batch", "heads", "queries"))
    wholes = (a["batch"], a["heads"], a["queries"])
    if not any(sizes):
        return ()
    if any(size not in {1, whole} for size, whole in zip(sizes, wholes, strict=True)):
        raise OperationError(f"attention: a mask of {sizes} rows does not fit {wholes}")
    return (Operand("mask", (*sizes, a["keys"])),)


def attended_pairs(a: Attributes) -> int:
    """Number of pairs of a query and a key that it may attend to, in an ``attention`` of any kind.

    It counts those of all samples and heads.
    """
    if not a["causal"]:
        pairs = a["queries"] * a["keys"]
    else:
        within = min(a["queries"], a["keys"])
        pairs = within * (within + 1) // 2 + (a["queries"] - within) * a["keys"]
    return a["batch"] * a["heads"] * pairs


def _attention_inputs(a: Attributes, suffix: str = "") -> tuple[Operand, ...]:
    query, key = _fused_queries(a, "query" + suffix), _fused_keys(a, "key" + suffix)
    if not a["packed"]:
        return query, key, _fused_keys(a, "value" + suffix)
    if a["queries"] != a["keys"]:
        raise OperationError(
            f"attention: packed, but queries={a['queries']} and keys={a['keys']} differ"
        )
    row = query.shape[2] + 2 * key.shape[2]
    return (Operand("packed" + suffix, (a["batch"], a["queries"], row)),)


define(
    KINDS,
    "attention.forward",
    _FUSED,
    lambda a: (*_attention_inputs(a), *_mask(a)),
    lambda a: (_fused_queries(a, "output"), _log_sum_exp(a)),
    lambda a: attended_pairs(a) * (4 * a["head_features"] + 12),
    scalars=_FUSED_SCALARS,
)
define(  # of all three at once: each needs the weights, which are computed again
    KINDS,
    "attention.input_gradient",
    _FUSED,
    lambda a: (
        *_attention_inputs(a),
        _fused_queries(a, "output"),
        _log_sum_exp(a),
        _fused_queries(a, "output_gradient"),
        *_mask(a),
    ),
    lambda a: _attention_inputs(a, "_gradient"),
    lambda a: attended_pairs(a) * (10 * a["head_features"] + 15),
    in_place={"query_gradient": "output_gradient"},
    scalars=_FUSED_SCALARS,
)

# Products of two matrices for every batch and head. A transposed operand has rows and columns
# exchanged in memory; in an interleaved one, the matrices of all heads are side by side, as after a
# linear layer.

_MATMUL = (
    *("batch", "heads", "rows", "depth", "columns"),
    *("left_transposed", "left_interleaved", "right_transposed", "right_interleaved"),
)


def _matrices(a: Attributes, side: str, rows: str, columns: str, suffix: str = "") -> Operand:
    height, width = a[rows], a[columns]
    if a[f"{side}_transposed"]:
        height, width = width, height
    if a[f"{side}_interleaved"]:
        return Operand(side + suffix, (a["batch"], height, a["heads"], width))
    return Operand(side + suffix, (a["batch"], a["heads"], height, width))


def _left(a: Attributes, suffix: str = "") -> Operand:
    return _matrices(a, "left", "rows", "depth", suffix)


def _right(a: Attributes, suffix: str = "") -> Operand:
    return _matrices(a, "right", "depth", "columns", suffix)


def _product(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["batch"], a["heads"], a["rows"], a["columns"]))


def _matmul_flop(a: Attributes) -> int:
    return 2 * _product(a, "").elements * a["depth"]


define(
    KINDS,
    "matmul.forward",
    _MATMUL,
    lambda a: (_left(a), _right(a)),
    lambda a: (_product(a, "output"),),
    _matmul_flop,
)
define(
    KINDS,
    "matmul.left_gradient",
    _MATMUL,
    lambda a: (_product(a, "output_gradient"), _right(a)),
    lambda a: (_left(a, "_gradient"),),
    _matmul_flop,
)
define(
    KINDS,
    "matmul.right_gradient",
    _MATMUL,
    lambda a: (_product(a, "output_gradient"), _left(a)),
    lambda a: (_right(a, "_gradient"),),
    _matmul_flop,
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

"""Sums, products and reductions with an operand that is repeated along axes.

The large tensor is [outer, middle, between, inner], the small one [middle, inner]: the small one is
repeated along ``outer`` and ``between``.
"""

from __future__ import annotations

from devices.signatures.base import Attributes, Operand, OperationError, Signature, define, matrix

KINDS: dict[str, Signature] = {}

_SIZES = ("outer", "middle", "between", "inner")


def _large(a: Attributes, role: str) -> Operand:
    return Operand(role, tuple(a[size] for size in _SIZES))


def _small(a: Attributes, role: str) -> Operand:
    return matrix(a, role, "middle", "inner")


def _work(flop: int, a: Attributes) -> int:
    return flop * _large(a, "").elements


define(
    KINDS,
    "broadcast_add.forward",
    _SIZES,
    lambda a: (_large(a, "input"), _small(a, "addend")),
    lambda a: (_large(a, "output"),),
    lambda a: _work(1, a),
    in_place={"output": "input"},
    passes=("input",),
)
define(
    KINDS,
    "broadcast_add.addend_gradient",
    _SIZES,
    lambda a: (_large(a, "output_gradient"),),
    lambda a: (_small(a, "addend_gradient"),),
    lambda a: _work(1, a),
)
define(
    KINDS,
    "broadcast_multiply.forward",
    _SIZES,
    lambda a: (_large(a, "input"), _small(a, "factor")),
    lambda a: (_large(a, "output"),),
    lambda a: _work(1, a),
    in_place={"output": "input"},
)
define(  # runs before the input gradient, which may then overwrite the output gradient
    KINDS,
    "broadcast_multiply.factor_gradient",
    _SIZES,
    lambda a: (_large(a, "input"), _large(a, "output_gradient")),
    lambda a: (_small(a, "factor_gradient"),),
    lambda a: _work(2, a),
)
define(
    KINDS,
    "broadcast_multiply.input_gradient",
    _SIZES,
    lambda a: (_large(a, "output_gradient"), _small(a, "factor")),
    lambda a: (_large(a, "input_gradient"),),
    lambda a: _work(1, a),
    in_place={"input_gradient": "output_gradient"},
)


def _define_select(entry: str, source: str, target: str) -> None:
    define(
        KINDS,
        f"broadcast_select.{entry}",
        _SIZES,
        lambda a: (_large(a, source), _small(a, "shown")),
        lambda a: (_large(a, target),),
        lambda a: _work(1, a),
        in_place={target: source},
    )


# Elements where ``shown`` is not 0, and 0 elsewhere: unlike a product, also of infinities.
_define_select("forward", "input", "output")
_define_select("input_gradient", "output_gradient", "input_gradient")

# Sums along ``outer`` and ``between``, times a factor (1, or that of a mean).
define(
    KINDS,
    "reduce.forward",
    _SIZES,
    lambda a: (_large(a, "input"),),
    lambda a: (_small(a, "output"),),
    lambda a: _work(1, a),
    scalars=("factor",),
)
define(
    KINDS,
    "reduce.input_gradient",
    _SIZES,
    lambda a: (_small(a, "output_gradient"),),
    lambda a: (_large(a, "input_gradient"),),
    lambda a: _work(1, a),
    scalars=("factor",),
)


def _rotated(a: Attributes, role: str) -> Operand:
    if a["inner"] % 2:
        raise OperationError(f"rotary: inner={a['inner']} is odd; features are turned in pairs")
    return _large(a, role)


def _define_rotary(entry: str, source: str, target: str) -> None:
    define(
        KINDS,
        f"rotary.{entry}",
        _SIZES,
        lambda a: (_rotated(a, source), _small(a, "cosine"), _small(a, "sine")),
        lambda a: (_rotated(a, target),),
        lambda a: _work(3, a),
        in_place={target: source},
    )


# Rotary position embedding (Su et al. 2021, RoFormer): feature i is turned together with feature
# i + inner / 2. Cosine and sine get no gradient.
_define_rotary("forward", "input", "output")
_define_rotary("input_gradient", "output_gradient", "input_gradient")

"""Layer norm and RMS norm over parts of the features.

Each part of the input is a tensor [rows, channels] with the features from ``first`` on. Sums over
the features of a row are 32 partial sums: feature f belongs to number f mod 32, in the order of the
features, as in the whole operation. A chain over the parts continues them, so that the norm has the
bits of the whole one, wherever it is cut:

- ``sum``, of layer norm alone: the sums of the input.
- ``squares``: the sums of the squared input, of layer norm less its mean.
- ``statistics``: mean and variance, or mean square, from the sums.
- ``forward``: a part of the output.
- ``gradient_sums``: the sums that the input gradient needs, of the scaled output gradient and of
  its product with the input; of RMS norm the latter alone.
- ``input_gradient``: a part of the input gradient.

The parameter gradient of a part is that of an ordinary norm of so many features.
"""

from __future__ import annotations

from collections.abc import Callable

from devices.signatures.base import Attributes, Operand, Signature, define, matrix
from devices.signatures.parts import PART, before, require_range

KINDS: dict[str, Signature] = {}

_SUMS = 32
"""Partial sums of a row (``JW_LANES``)."""

_OF_FEATURES = ("rows", "features", *PART)
_Operands = Callable[[Attributes], tuple[Operand, ...]]


def _data(a: Attributes, role: str) -> Operand:
    require_range("norm block", a, (*PART, "features"))
    return matrix(a, role, "rows", PART[1])


def _parameter(a: Attributes, role: str) -> Operand:
    return Operand(role, (a[PART[1]],))


def _sums(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["rows"], _SUMS), "positive" if role == "squares" else "signed")


def _statistics(*roles: str) -> _Operands:
    return lambda a: tuple(
        Operand(role, (a["rows"],), "signed" if role == "mean" else "positive") for role in roles
    )


def _define_sums(
    kind: str, reads: _Operands, written: tuple[str, ...], flop_per_element: int
) -> None:
    """A chain of partial sums."""

    def sums(a: Attributes) -> tuple[Operand, ...]:
        return tuple(_sums(a, role) for role in written)

    define(
        KINDS,
        kind,
        _OF_FEATURES,
        lambda a: (*reads(a), *(map(before, sums(a)) if a[PART[0]] else ())),
        sums,
        lambda a: flop_per_element * _data(a, "input").elements,
        in_place={role: f"{role}_before" for role in written},
        continues=True,
    )


def _define_norm(
    family: str, statistics: _Operands, parameters: tuple[str, ...], totals: tuple[str, ...]
) -> None:
    """The kinds that both norms have; ``totals`` are the sums of the gradient."""
    has_mean = family == "layer_norm_block"
    of_input = ("sums", "squares") if has_mean else ("squares",)

    def gradient_reads(a: Attributes) -> tuple[Operand, ...]:
        data = (_data(a, "input"), _data(a, "output_gradient"), _parameter(a, "scale"))
        return (*data, *statistics(a))

    _define_sums(
        f"{family}.squares",
        lambda a: (_data(a, "input"), *(_sums(a, role) for role in of_input[:-1])),
        ("squares",),
        3 if has_mean else 2,
    )
    define(
        KINDS,
        f"{family}.statistics",
        ("rows", "features"),
        lambda a: tuple(_sums(a, role) for role in of_input),
        statistics,
        lambda a: sum(_sums(a, role).elements for role in of_input),
    )
    define(
        KINDS,
        f"{family}.forward",
        _OF_FEATURES,
        lambda a: (
            _data(a, "input"),
            *(_parameter(a, role) for role in parameters),
            *statistics(a),
        ),
        lambda a: (_data(a, "output"),),
        lambda a: (3 if has_mean else 2) * _data(a, "input").elements,
        scalars=("epsilon",),
    )
    _define_sums(f"{family}.gradient_sums", gradient_reads, totals, 5 if has_mean else 3)
    define(
        KINDS,
        f"{family}.input_gradient",
        _OF_FEATURES,
        lambda a: (*gradient_reads(a), *(_sums(a, role) for role in totals)),
        lambda a: (_data(a, "input_gradient"),),
        lambda a: (6 if has_mean else 4) * _data(a, "input").elements,
        in_place={"input_gradient": "output_gradient"},
        scalars=("epsilon",),
    )


_define_sums("layer_norm_block.sum", lambda a: (_data(a, "input"),), ("sums",), 1)
_define_norm(
    "layer_norm_block",
    _statistics("mean", "variance"),
    ("scale", "shift"),
    ("gradient_sums", "gradient_products"),
)
_define_norm("rms_norm_block", _statistics("mean_square"), ("scale",), ("gradient_products",))

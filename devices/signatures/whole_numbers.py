"""Whole numbers that are computed: positions, masks and indices.

They are float32, which has every whole number up to 2^24, between the input that they come from and
the operation that takes them as indices.
"""

from __future__ import annotations

from devices.signatures.base import (
    ELEMENTS,
    Attributes,
    Operand,
    Signature,
    define,
    per_element,
    vectors,
)

KINDS: dict[str, Signature] = {}

MOST = 2**24
"""Bound of whole numbers in float32."""

define(
    KINDS,
    "from_integers.forward",
    ELEMENTS,
    lambda a: (Operand("integers", (a["elements"],), "index", MOST),),
    vectors("output"),
    per_element(1),
)
define(  # int32, of which those outside are the nearest from 0 to bound - 1; bound 0 leaves all
    KINDS,
    "to_indices.forward",
    ("elements", "bound"),
    vectors("input"),
    vectors("indices"),
    per_element(2),
)
define(  # 1 where the input is the number, else 0
    KINDS,
    "equal_number.forward",
    ELEMENTS,
    vectors("input"),
    vectors("output"),
    per_element(1),
    in_place={"output": "input"},
    scalars=("number",),
)


def _rows(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["outer"], a["size"], a["inner"]))


def _define_cumulative_sum(entry: str, source: str, target: str) -> None:
    define(
        KINDS,
        f"cumulative_sum.{entry}",
        ("outer", "size", "inner"),
        lambda a: (_rows(a, source),),
        lambda a: (_rows(a, target),),
        lambda a: _rows(a, "").elements,
        in_place={target: source},
    )


# Sums of the elements up to each one along an axis; of gradients, from each one on.
_define_cumulative_sum("forward", "input", "output")
_define_cumulative_sum("input_gradient", "output_gradient", "input_gradient")

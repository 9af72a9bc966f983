"""Scalar types of documents, each with the numbers or names that it allows.

The bounds are far beyond anything plausible. They make sure that sums and products of valid figures
are finite, and that a message names the figure instead of what it breaks. Such a sum or product may
be beyond the bounds itself, and a quotient by a tiny figure infinite: whoever states one checks it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from devices.documents.explain import shown
from devices.documents.readable import size

MOST_COST = 1e9
"""Most seconds or joules of one execution or transfer: 31 years, 278 kWh."""

MOST_BYTES = 2**48
"""Most bytes of all tensors of a graph, and most RAM: 256 TiB."""

MOST = 1e18
"""Most of any quantity, in its SI unit."""

LEAST = 1e-12
"""Least of any quantity that is more than zero, such as a deadline."""

_MOST_WHOLE = 2**63 - 1
_LONGEST_NAME = 4096
_LONGEST_LABEL = 400

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_Text = TypeVar("_Text", str, Path)


def _without_control_characters(text: _Text) -> _Text:
    """No program or file can have a NUL in its name, and others change what a terminal shows."""
    if _CONTROL.search(str(text)):
        raise ValueError(f"found {shown(str(text))}; allowed: text without control characters")
    return text


NonNegative: TypeAlias = Annotated[float, Field(ge=0, le=MOST)]
"""Also sums: a thousand million actions of ``MOST_COST`` each stay within it."""
Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Positive: TypeAlias = Annotated[float, Field(ge=LEAST, le=MOST)]
UnitCost: TypeAlias = Annotated[float, Field(ge=0, le=MOST_COST)]
"""Seconds or joules of one execution or transfer."""
Size: TypeAlias = Annotated[int, Field(ge=0, le=_MOST_WHOLE)]
"""Bytes."""
WholeNumber: TypeAlias = Annotated[int, Field(ge=0, le=_MOST_WHOLE)]
"""An index, or a number of things from 0 on."""
Seed: TypeAlias = WholeNumber
"""Seed of random numbers."""
Count: TypeAlias = Annotated[int, Field(ge=1, le=_MOST_WHOLE)]
"""A number of things from 1 on."""
Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]
Line: TypeAlias = Annotated[
    str, Field(max_length=_LONGEST_NAME), AfterValidator(_without_control_characters)
]
Name: TypeAlias = Annotated[
    str,
    Field(min_length=1, max_length=_LONGEST_NAME),
    AfterValidator(_without_control_characters),
]
Label: TypeAlias = Annotated[
    str, Field(max_length=_LONGEST_LABEL), AfterValidator(_without_control_characters)
]
"""Name that stands in messages: of an op, a tensor, a graph, a profile."""
FilePath: TypeAlias = Annotated[Path, AfterValidator(_without_control_characters)]


@dataclass(frozen=True)
class Slices:
    """Most bytes of a weight in a part, and of an activation; None: activations are whole."""

    weights: Count
    activations: Count | None = None

    @property
    def stated(self) -> int | str:
        """Form in documents: ``65536``, or ``65536:16384`` with parts of activations."""
        return self.weights if self.activations is None else f"{self.weights}:{self.activations}"

    def __str__(self) -> str:
        of_activations = "" if self.activations is None else f":{size(self.activations)}"
        return f"{size(self.weights)}{of_activations}"


def _slices(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"weights": value}
    if not isinstance(value, str):
        return value
    weights, _, activations = value.partition(":")
    if not (weights.isdecimal() and activations.isdecimal()):
        raise ValueError("must be a number of bytes, or two such as 65536:16384")
    return {"weights": int(weights), "activations": int(activations)}


StatedSlices: TypeAlias = Annotated[
    Slices, BeforeValidator(_slices), PlainSerializer(lambda slices: slices.stated)
]
"""Slices in a document."""

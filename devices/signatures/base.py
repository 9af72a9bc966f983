"""Parts of an operation's signature, and operands that several families share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from devices.errors import InputError

ELEMENT_BYTES = 4

Attributes: TypeAlias = Mapping[str, int]
Fill: TypeAlias = Literal["signed", "positive", "index"]


class OperationError(InputError):
    """A kind, attribute or key is not valid; the message says what is allowed."""


@dataclass(frozen=True)
class Operand:
    """One tensor that an operation reads or writes.

    ``fill`` states which values are valid input when the operation is measured by itself:
    any (``signed``), greater than zero (``positive``), or int32 below ``index_bound`` (``index``).
    """

    role: str
    shape: tuple[int, ...]
    fill: Fill = "signed"
    index_bound: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * ELEMENT_BYTES


@dataclass(frozen=True)
class Signature:
    """Attributes, operands, work and scalars of a kind of operation.

    ``in_place`` maps a written role to the read role whose bytes it may overwrite. ``mutates``: it
    always overwrites them, so that the operation runs only once a step. ``passes`` names the read
    roles of a forward operation whose gradient is the output's. ``continues``: the overwritten
    operand is an unfinished result, of which the operation keeps what it does not compute; apart,
    it is copied. A scalar named ``seed`` is the last one; every training step advances it.
    """

    attributes: tuple[str, ...]
    reads: Callable[[Attributes], tuple[Operand, ...]]
    writes: Callable[[Attributes], tuple[Operand, ...]]
    work_flop: Callable[[Attributes], int]
    in_place: Mapping[str, str]
    scalars: tuple[str, ...]
    mutates: bool
    passes: tuple[str, ...]
    continues: bool


Operands: TypeAlias = Callable[[Attributes], tuple[Operand, ...]]


def define(
    kinds: dict[str, Signature],
    kind: str,
    attributes: tuple[str, ...],
    reads: Operands,
    writes: Operands,
    work_flop: Callable[[Attributes], int],
    *,
    in_place: Mapping[str, str] | None = None,
    scalars: tuple[str, ...] = (),
    mutates: bool = False,
    passes: tuple[str, ...] = (),
    continues: bool = False,
) -> None:
    """Add the signature of ``kind`` to a family's signatures."""
    kinds[kind] = Signature(
        attributes, reads, writes, work_flop, in_place or {}, scalars, mutates, passes, continues
    )


def matrix(a: Attributes, role: str, rows: str, columns: str) -> Operand:
    return Operand(role, (a[rows], a[columns]))


def planes(a: Attributes, role: str) -> Operand:
    return Operand(role, (a["batch"], a["channels"], a["plane"]))


def indices(a: Attributes, role: str, bound: str) -> Operand:
    return Operand(role, (a["rows"],), "index", a[bound])


def bias(a: Attributes, size: str, role: str) -> tuple[Operand, ...]:
    return (Operand(role, (a[size],)),) if a["bias"] else ()


ELEMENTS = ("elements",)


def vector(a: Attributes, role: str, fill: Fill = "signed") -> Operand:
    return Operand(role, (a["elements"],), fill)


def vectors(*roles: str) -> Operands:
    return lambda a: tuple(vector(a, role) for role in roles)


def per_element(flop: int) -> Callable[[Attributes], int]:
    return lambda a: flop * a["elements"]

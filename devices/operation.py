"""OpSpec: one operation with its shapes, the key that profiles, graphs and kernels share.

A *kind* is ``family.entry``: ``conv2d.forward``, ``conv2d.input_gradient``, ``sgd.update``.
Each kind has a signature: the integer attributes that fix its shapes, and the operands that it
reads and writes, in the order in which the C kernels take them. Bytes moved and work follow
from these.

Layouts: images are NCHW, matrices row-major, sequences [batch, sequence, features] with the
heads side by side inside a row. Every element has four bytes (float32, or int32 for indices).
Real-valued parameters of an operation (learning rate, dropout probability, epsilon) do not
affect its cost and are not part of the key; the kernels take them as *scalars*.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias

from devices.signatures import SIGNATURES, parts
from devices.signatures.base import ELEMENT_BYTES, Operand, OperationError, Signature
from devices.signatures.tiles import KernelBuild
from devices.signatures.workspaces import workspace_bytes

__all__ = [
    "ELEMENT_BYTES",
    "SIGNATURES",
    "Loss",
    "OpSpec",
    "Operand",
    "OperationError",
    "Phase",
    "Signature",
]

Phase: TypeAlias = Literal["forward", "backward", "update"]
"""Part of a training step."""

Loss: TypeAlias = Literal["cross-entropy", "mse"]
"""Loss that is added to a network whose file returns predictions."""


@dataclass(frozen=True)
class OpSpec:
    """One operation of a training step: a kind and its attributes in the signature's order.

    Build one with :meth:`of` or :meth:`parse`; both raise :class:`OperationError`.
    """

    kind: str
    values: tuple[int, ...]

    @classmethod
    def of(cls, kind: str, **attributes: int) -> OpSpec:
        """Build an operation from its kind and attributes.

        Args:
            kind: ``family.entry``, such as ``conv2d.forward``.
            attributes: Exactly the attributes of the kind's signature.

        Returns:
            The operation.

        Raises:
            OperationError: The kind is unknown, an attribute is missing, unknown, too small or too
                large, or an operand would be empty.
        """
        signature = _signature(kind)
        if set(attributes) != set(signature.attributes):
            wrong = sorted(set(attributes) ^ set(signature.attributes))
            raise OperationError(
                f"{kind}: attributes {', '.join(wrong)} are missing or unknown;"
                f" required: {', '.join(signature.attributes)}"
            )
        for name, value in attributes.items():
            lowest = 0 if name in _MAY_BE_ZERO else 1
            if not lowest <= value <= _LARGEST:
                raise OperationError(
                    f"{kind}: {name} is {value}, it must be from {lowest} to {_LARGEST}"
                )
        return _checked(kind, tuple(attributes[name] for name in signature.attributes))

    @classmethod
    def parse(cls, key: str) -> OpSpec:
        """Parse a key, the inverse of :attr:`key`; raises :class:`OperationError`."""
        words = key.split()
        if not words:
            raise OperationError(f"{key!r} names no operation")
        kind, *pairs = words
        attributes: dict[str, int] = {}
        for pair in pairs:
            name, _, value = pair.partition("=")
            if not _INTEGER.fullmatch(value):
                raise OperationError(f"{key!r}: {pair!r} is not of the form name=integer")
            if name in attributes:
                raise OperationError(f"{key!r}: {name} is given twice")
            attributes[name] = int(value)
        return cls.of(kind, **parts.with_all_inputs(kind, attributes))

    @property
    def family(self) -> str:
        """Part of the kind before the dot, such as ``conv2d``."""
        return self.kind.partition(".")[0]

    @property
    def signature(self) -> Signature:
        return SIGNATURES[self.kind]

    @cached_property
    def attributes(self) -> dict[str, int]:
        return dict(zip(self.signature.attributes, self.values, strict=True))

    @cached_property
    def key(self) -> str:
        """Text form ``kind name=value …``, which :meth:`parse` reads."""
        return " ".join(
            (self.kind, *(f"{name}={value}" for name, value in self.attributes.items()))
        )

    @cached_property
    def reads(self) -> tuple[Operand, ...]:
        """Operands read, in the order of the kernel's arguments."""
        return self.signature.reads(self.attributes)

    @cached_property
    def writes(self) -> tuple[Operand, ...]:
        """Operands written, in the order of the kernel's arguments."""
        return self.signature.writes(self.attributes)

    @cached_property
    def in_place(self) -> Mapping[str, str]:
        """Written roles that may overwrite a read one, with that role."""
        read = {operand.role for operand in self.reads}
        pairs = (
            (operand.role, self.signature.in_place.get(operand.role)) for operand in self.writes
        )
        return {written: role for written, role in pairs if role in read and role is not None}

    @cached_property
    def gradients(self) -> tuple[OpSpec, ...]:
        """Gradient operations of a forward operation."""
        return tuple(
            OpSpec.of(kind, **self.attributes)
            for kind in SIGNATURES
            if kind.startswith(f"{self.family}.") and kind.endswith("_gradient")
        )

    @cached_property
    def costed_as(self) -> OpSpec:
        """The operation that has the same cost: of parts of one size, the first that does as much.

        For any operation but a part, that is the operation itself.
        """
        continued = any(operand.role.endswith("_before") for operand in self.reads)
        found = parts.representative(self.kind, self.attributes, continued=continued)
        return OpSpec.of(self.kind, **found)

    @cached_property
    def as_layer(self) -> OpSpec | None:
        """The whole operation that does the work of this part or block; None if this is neither."""
        found = parts.smaller_layer(self.kind, self.attributes)
        return None if found is None else OpSpec.of(found[0], **found[1])

    @property
    def differentiated(self) -> frozenset[str]:
        """Roles of the operands read that have a gradient."""
        written = (operand.role for spec in self.gradients for operand in spec.writes)
        return frozenset(
            (*self.signature.passes, *(role.removesuffix("_gradient") for role in written))
        )

    @property
    def work_flop(self) -> int:
        """Floating-point operations by the textbook count, in which a multiply-add is two."""
        return self.signature.work_flop(self.attributes)

    @property
    def moved_bytes(self) -> int:
        """Bytes read plus bytes written, each operand once."""
        return sum(operand.bytes for operand in (*self.reads, *self.writes))

    def workspace_bytes(self, build: KernelBuild) -> int:
        """Bytes of workspace that the operation's kernel needs in a build of the kernels."""
        return workspace_bytes(self.kind, self.attributes, build)

    def __str__(self) -> str:
        return self.key


_INTEGER = re.compile(r"-?[0-9]{1,20}")
# Attributes that may be zero: paddings, flags and distances. All others are sizes.
_LARGEST = 2**31 - 1
_MAY_BE_ZERO = frozenset(
    {
        *("align_corners", "padding_index"),
        *("pad_top", "pad_bottom", "pad_left", "pad_right", "bias", "offset"),
        *("batch_first", "reverse", "initial_hidden", "initial_cell", "final_cell"),
        *(f"stride{axis}" for axis in range(6)),  # of a repeated axis
        *("left_transposed", "left_interleaved", "right_transposed", "right_interleaved"),
        *("causal", "dropout", "packed", "mask_batch", "mask_heads", "mask_queries"),
        *("first", "first_input", "continued", "by_weight", "bound"),
    }
)


@lru_cache(maxsize=1 << 15)
def _checked(kind: str, values: tuple[int, ...]) -> OpSpec:
    """An operation without empty operands.

    Forms of a step share thousands of operations, and what follows from each is computed once.
    """
    spec = OpSpec(kind, values)
    for operand in (*spec.reads, *spec.writes):
        if min(operand.shape, default=1) < 1:
            raise OperationError(f"{spec.key}: {operand.role} has shape {operand.shape}")
    return spec


def _signature(kind: str) -> Signature:
    if kind not in SIGNATURES:
        import difflib

        near = difflib.get_close_matches(kind, SIGNATURES, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(SIGNATURES)}"
        raise OperationError(f"no operation of kind {kind!r}{hint}")
    return SIGNATURES[kind]

"""One node of an ONNX graph, as the translations read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from networks.exported.construction import Unsupported
from networks.exported.program import Argument, Reference
from networks.onnx.layouts import Blocks

if TYPE_CHECKING:
    from onnx import NodeProto


class Target(Protocol):
    """Program that is under construction."""

    def constant(self, name: str) -> NDArray[Any] | None:
        """The numbers of a tensor that is the same in every step and not trained."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""

    def is_whole(self, name: str) -> bool:
        """Whether the elements of a tensor are integers."""

    def is_given(self, name: str) -> bool:
        """Whether a tensor is an input, perhaps in another shape."""

    def is_read(self, name: str) -> bool:
        """Whether a node reads a tensor, or the graph returns it."""

    def laid_out(self, name: str, part: str, blocks: Blocks) -> Reference | None:
        """Blocks of an initializer as a parameter; None if other operations read it too.

        ``part`` tells the parameters apart that are made of one initializer.
        """

    def state(self, name: str, numbers: NDArray[Any]) -> Reference:
        """A constant that the file does not have."""

    def with_bias(self, product: str, bias: str, total: str) -> bool:
        """Add a bias to the linear layer without one that made ``product``, if it can have one."""

    def append(
        self,
        operation: OnnxOperation,
        target: str,
        arguments: Mapping[str, Argument],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Reference:
        """Append a node that makes tensors of these names and shapes; return the first."""


@dataclass(frozen=True)
class OnnxOperation:
    """A node with its attributes, and the program that its translation is appended to."""

    name: str
    kind: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, object]
    program: Target

    @classmethod
    def of(cls, node: NodeProto, version: int, program: Target) -> OnnxOperation:
        """Read a node; ``version`` is that of the set of operations."""
        from onnx.helper import get_attribute_value

        try:
            attributes = {each.name: get_attribute_value(each) for each in node.attribute}
        except ValueError as error:
            raise Unsupported(f"its attributes cannot be read: {error}") from None
        outputs = tuple(node.output)
        return cls(
            node.name or outputs[0],
            node.op_type,
            version,
            tuple(node.input),
            outputs,
            attributes,
            program,
        )

    # --- attributes ---------------------------------------------------------------------------

    def integer(self, name: str, default: int) -> int:
        """A whole number."""
        found = self.attributes.get(name, default)
        if not isinstance(found, int):
            raise Unsupported(f"{name} is not a whole number")
        return found

    def number(self, name: str, default: float) -> float:
        """A finite number."""
        found = self.attributes.get(name, default)
        if not isinstance(found, int | float) or not np.isfinite(found):
            raise Unsupported(f"{name} is not a finite number")
        return float(found)

    def text(self, name: str, default: str) -> str:
        """A word."""
        found = self.attributes.get(name, default)
        return found.decode(errors="replace") if isinstance(found, bytes) else str(found)

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Whole numbers."""
        found = self.attributes.get(name, default)
        if not isinstance(found, tuple | list) or not all(isinstance(n, int) for n in found):
            raise Unsupported(f"{name} is missing" if found is None else f"{name} is {found}")
        return tuple(found)

    def setting(self, name: str, position: int) -> tuple[Any, ...] | None:
        """Numbers of an attribute, which newer versions have as a constant input."""
        found = self.attributes.get(name)
        if found is not None:
            return tuple(found) if isinstance(found, tuple | list) else (found,)
        if not self.has(position):
            return None
        return tuple(self.known(position).reshape(-1).tolist())

    def axis(self, count: int, default: int, name: str = "axis") -> int:
        """An axis of a tensor that has ``count``; a negative one counts from the last."""
        return checked_axes((self.integer(name, default),), count)[0]

    def require(self, **wanted: object) -> None:
        """Refuse attributes that differ from these values, which are their defaults."""
        for name, value in wanted.items():
            found = self.attributes.get(name, value)
            found = found.decode(errors="replace") if isinstance(found, bytes) else found
            if found != value:
                raise Unsupported(f"{name} is {found}; only {value} is supported")

    # --- inputs -------------------------------------------------------------------------------

    def has(self, position: int) -> bool:
        """Whether an optional input is given."""
        return position < len(self.inputs) and self.inputs[position] != ""

    def input(self, position: int = 0) -> str:
        """Name of an input."""
        if not self.has(position):
            raise Unsupported(f"input {position} is missing")
        return self.inputs[position]

    def shape(self, position: int = 0) -> tuple[int, ...]:
        """Shape of an input."""
        return self.program.shape(self.input(position))

    def tensor(self, position: int = 0) -> Reference:
        """An input as an argument of a node."""
        return Reference(self.input(position))

    def constant(self, position: int) -> NDArray[Any] | None:
        """The numbers of an input that is the same in every step and not trained."""
        return self.program.constant(self.input(position))

    def known(self, position: int) -> NDArray[Any]:
        """The numbers of an input that must be constant."""
        found = self.constant(position)
        if found is None:
            raise Unsupported(f"{self.input(position)} is computed; it must be constant")
        return found

    # --- results ------------------------------------------------------------------------------

    @property
    def result(self) -> tuple[int, ...]:
        """Shape of the first output."""
        return self.program.shape(self.outputs[0])

    def become(self, target: str, /, **arguments: Argument) -> None:
        """Append the node that makes the outputs; only the first one may be read."""
        unmade = [name for name in self.outputs[1:] if name and self.program.is_read(name)]
        if unmade:
            raise Unsupported(f"its result {unmade[0]} is read, which only training has")
        self.program.append(self, target, arguments, {self.outputs[0]: self.result})

    def step(
        self, part: str, target: str, shape: tuple[int, ...], /, **arguments: Argument
    ) -> Reference:
        """Append a node before the last one, and return its result."""
        return self.program.append(self, target, arguments, {f"{self.outputs[0]}.{part}": shape})


def checked_axes(axes: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Axes of a tensor that has ``count``, from the first."""
    if any(not -count <= axis < count for axis in axes):
        raise Unsupported(f"its axes are {axes} of a tensor with {count}")
    return tuple(axis % count for axis in axes)


Translation: TypeAlias = Callable[[OnnxOperation], None]
"""Appends the nodes that an operation becomes, or raises :class:`Unsupported`."""

"""The operations of which one of a program consists, under construction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from networks.exported.constants import MOST_ELEMENTS
from networks.exported.program import (
    FLOAT32,
    INT32,
    INT64,
    Argument,
    Node,
    Program,
    Reference,
    TensorMeta,
)
from networks.exported.sharing import PARTS

Shape: TypeAlias = tuple[int, ...]

_SAME_ELEMENTS = tuple(
    f"aten.{name}."
    for name in (
        *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "contiguous"),
        *("clone", "alias", "detach", "to", "type_as"),
    )
)


class Incomplete(Exception):
    """The node lacks a tensor, or is too large; it is mapped as it is, and refused by its name."""


class Parts:
    """The nodes of which ``node`` consists; the methods append them, and return their results."""

    def __init__(self, node: Node, program: Program, learned: Set[str], varying: Set[str]) -> None:
        """Begin without parts.

        ``learned`` are the tensors that depend on parameters, ``varying`` those that may have
        other numbers in another step.
        """
        self.node = node
        self.nodes: list[Node] = []
        self.tensors: dict[str, TensorMeta] = {}
        self.numbers: dict[str, NDArray[Any]] = {}
        self._program, self._learned, self._varying = program, learned, varying

    # --- operands -----------------------------------------------------------------------------

    def operand(self, name: str = "self") -> Reference:
        """A tensor among the arguments, which must be one."""
        found = self.node.arguments.get(name)
        if not isinstance(found, Reference):
            raise Incomplete
        return found

    def has(self, name: str) -> bool:
        """Whether an optional tensor is given."""
        return isinstance(self.node.arguments.get(name), Reference)

    def has_number(self, name: str) -> bool:
        """Whether the node's argument of this name is a number."""
        return isinstance(self.node.arguments.get(name), int | float)

    def is_read(self, output: int) -> bool:
        """Whether anything reads one of the node's results."""
        name = self.node.outputs[output]
        return name in self._program.outputs or any(name in n.reads for n in self._program.nodes)

    def number(self, name: str, default: float) -> float:
        """A number among the arguments."""
        found = self.node.arguments.get(name)
        return float(found) if isinstance(found, int | float) else default

    def axes(self, name: str, x: Reference) -> Shape:
        """Axes of a tensor among the arguments, all by default."""
        found, count = self.node.arguments.get(name), len(self.shape(x))
        stated = (found,) if isinstance(found, int) else found
        if not isinstance(stated, tuple) or not stated:
            return tuple(range(count))
        return tuple(axis % count for axis in stated if isinstance(axis, int))

    def sizes(self, name: str, count: int) -> Shape:
        """Sizes along some axes, of which one may stand for all."""
        found = self.node.arguments.get(name)
        stated = found if isinstance(found, tuple) else (found,)
        sizes = tuple(each for each in stated if isinstance(each, int))
        return sizes * count if len(sizes) == 1 else sizes

    def axis(self, name: str, x: Reference, default: int) -> int:
        """One axis of a tensor among the arguments."""
        return int(self.number(name, default)) % max(1, len(self.shape(x)))

    def shape(self, x: Reference) -> Shape:
        """Shape of a tensor."""
        return (self.tensors.get(x.name) or self._program.tensors[x.name]).shape

    def is_fixed(self, x: Reference) -> bool:
        """Whether no gradient flows through a tensor."""
        return x.name not in self._learned

    def varies(self, x: Reference) -> bool:
        """Whether the values of an operand may differ between steps."""
        return x.name in self._varying

    def is_input(self, x: Reference) -> bool:
        """Whether a tensor is an input, perhaps in another shape."""
        name = x.name
        for node in reversed(self._program.nodes):
            if name in node.outputs and node.target.startswith(_SAME_ELEMENTS):
                name = node.reads[0]
        return name in self._program.inputs

    def is_whole(self, x: Reference) -> bool:
        """Whether the elements of an operand are integers."""
        return self._program.tensors[x.name].dtype in {INT32, INT64}

    def is_float(self, x: Reference) -> bool:
        """Whether the elements of an operand are numbers that can be trained with."""
        return self._program.tensors[x.name].dtype == FLOAT32

    @property
    def result(self) -> Shape:
        """Shape of the node's result."""
        return self._program.tensors[self.node.outputs[0]].shape

    # --- parts --------------------------------------------------------------------------------

    def add(self, target: str, shape: Shape, /, **arguments: Argument) -> Reference:
        """Append an operation."""
        name = f"{self.node.outputs[0]}.{len(self.nodes) + 1}"
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        meta = self._program.tensors[self.node.outputs[0]]
        self.tensors[name] = replace(meta, shape=shape, strides=strides, offset=0)
        self._append(target, arguments, name)
        return Reference(name)

    def of(self, target: str, x: Reference, /, **arguments: Argument) -> Reference:
        """Append a function of each element."""
        return self.add(f"{target}.default", self.shape(x), self=x, **arguments)

    def scaled(self, x: Reference, factor: float) -> Reference:
        """Append a product with a number."""
        return x if factor == 1 else self.add("mul.Scalar", self.shape(x), self=x, other=factor)

    def raised(self, x: Reference, addend: float) -> Reference:
        """Append a sum with a number."""
        return x if addend == 0 else self.add("add.Scalar", self.shape(x), self=x, other=addend)

    def pair(self, name: str, left: Reference, right: Reference) -> Reference:
        """Append ``add``, ``mul``, ``gt`` or another operation on pairs of elements.

        Tensors may be repeated.
        """
        return self.add(f"{name}.Tensor", self._joint_shape(left, right), self=left, other=right)

    def _joint_shape(self, left: Reference, right: Reference) -> Shape:
        sizes = zip_longest(self.shape(left)[::-1], self.shape(right)[::-1], fillvalue=1)
        return tuple(max(each) for each in sizes)[::-1]

    def total(
        self, x: Reference, axes: Sequence[int], *, mean: bool = False, keep: bool = False
    ) -> Reference:
        """Append a sum or a mean along axes."""
        shape = tuple(
            1 if axis in axes else size
            for axis, size in enumerate(self.shape(x))
            if keep or axis not in axes
        )
        target = "mean.dim" if mean else "sum.dim_IntList"
        return self.add(target, shape, self=x, dim=tuple(axes), keepdim=keep)

    def reshaped(self, x: Reference, shape: Shape) -> Reference:
        """Append the same elements in another shape."""
        return self.add("reshape.default", shape, self=x, shape=shape)

    def permuted(self, x: Reference, order: Sequence[int]) -> Reference:
        """Append the same elements with their axes in another order."""
        shape = tuple(self.shape(x)[axis] for axis in order)
        return self.add("permute.default", shape, self=x, dims=tuple(order))

    def compared(self, name: str, x: Reference, number: float) -> Reference:
        """Append ``eq``, ``ne``, ``lt``, ``le``, ``gt`` or ``ge`` of each element and a number."""
        return self.add(f"{name}.Scalar", self.shape(x), self=x, other=number)

    def selected(self, x: Reference, chosen: Reference) -> Reference:
        """Append the elements where another tensor is not 0, and 0 elsewhere.

        No gradient flows to the elements that are not selected.
        """
        shape, condition = self._joint_shape(x, chosen), self.of("detach", chosen)
        return self.add("where.ScalarOther", shape, condition=condition, self=x, other=0.0)

    @staticmethod
    def places(count: int) -> NDArray[np.int64]:
        """Whole numbers from 0 on.

        Raises:
            Incomplete: There are too many.
        """
        if not 0 <= count <= MOST_ELEMENTS:
            raise Incomplete
        return np.arange(count)

    def taken(self, x: Reference, axis: int, places: NDArray[np.int64]) -> Reference:
        """Append the elements at some places along an axis."""
        shape = list(self.shape(x))
        shape[axis] = len(places)
        index = self.constant(places)
        return self.add("index_select.default", tuple(shape), self=x, dim=axis, index=index)

    def slice(self, x: Reference, axis: int, start: int, end: int) -> Reference:
        """Append some of the elements along an axis."""
        shape = list(self.shape(x))
        shape[axis] = end - start
        return self.add("slice.Tensor", tuple(shape), self=x, dim=axis, start=start, end=end)

    def constant(self, numbers: NDArray[Any]) -> Reference:
        """Numbers that the program does not state."""
        name = f"{self.node.outputs[0]}.constant{len(self.numbers) + 1}"
        meta = self._program.tensors[self.node.outputs[0]]
        strides = tuple(each // numbers.itemsize for each in numbers.strides)
        self.tensors[name] = replace(
            meta, shape=numbers.shape, strides=strides, offset=0, requires_grad=False
        )
        self.numbers[name] = numbers
        return Reference(name)

    def end(self, result: Reference, output: int = 0) -> None:
        """State which tensor is the node's result, or one of several."""
        is_view = self.node.target.removeprefix("aten.") in PARTS
        target = "alias.default" if is_view else "clone.default"
        self._append(target, {"self": result}, self.node.outputs[output])

    def _append(self, target: str, arguments: Mapping[str, Argument], output: str) -> None:
        node = self.node
        self.nodes.append(
            replace(
                node,
                name=f"{node.name}.{len(self.nodes) + 1}",
                target=f"aten.{target}",
                arguments=arguments,
                outputs=(output,),
                stated=node.stated or node.target,
            )
        )


Decomposition: TypeAlias = Callable[[Parts], None]
"""Appends the parts of a node, or none where it is mapped as it is."""

"""Which tensors of a step are cut, and where.

Axes of tensors that operations cut together form a *class*: the channels of a convolution's output
are those of the batch norm, the activation and the sums after it, of their gradients and of the
rows of the weight. A class has one list of cuts. It is cut only if a tensor in it is larger than
the limit and no operation needs one of its tensors whole. Weights with a cut axis are cut further,
along the axis on which their blocks are longer, until a block is no larger than its own limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from networks.training.channels.axes import EMBEDDINGS, axes_of
from networks.training.step import Part, StepOp, TrainingStep

ROWS, COLUMNS = 0, 1

_EVEN = 8
"""Parts of more channels have a multiple of this many, if that is within the limit: matrix products
are then faster."""

Range = tuple[int, int]
"""First of some channels, and their number."""


@dataclass(frozen=True)
class Layout:
    """How a tensor is cut: ranges of its rows and columns, which are repeated ``outer`` times."""

    name: str
    rows: tuple[Range, ...]
    columns: tuple[Range, ...]
    outer: int

    @property
    def is_cut(self) -> bool:
        """Whether the tensor has several parts."""
        return len(self.rows) * len(self.columns) > 1

    @property
    def numbers(self) -> Iterator[tuple[int, int]]:
        """Numbers of the ranges of rows and columns of every part."""
        return product(range(len(self.rows)), range(len(self.columns)))

    def suffix(self, row: int, column: int = 0) -> str:
        """Text that names a part after the tensor, such as ``[0:8]`` or ``[0:8,16:32]``."""
        if not self.is_cut:
            return ""
        columns = f",{ranged(*self.columns[column])}" if len(self.columns) > 1 else ""
        return f"[{ranged(*self.rows[row])}{columns}]"

    def part(self, row: int, column: int = 0) -> str:
        """Name of a part."""
        return self.name + self.suffix(row, column)

    def share(self, row: int, column: int) -> tuple[int, int]:
        """Size of a part and of the whole, in the same unit."""
        part = self.rows[row][1] * self.columns[column][1]
        return part, _end(self.rows) * _end(self.columns)

    def place(self, row: int, column: int) -> Part:
        """Where a part lies in the tensor."""
        return Part(
            *(self.name, *self.rows[row], _end(self.rows)),
            self.outer,
            *(*self.columns[column], _end(self.columns)),
        )


def ranged(first: int, count: int) -> str:
    """Text of a range, such as ``8:16``."""
    return f"{first}:{first + count}"


def _end(ranges: tuple[Range, ...]) -> int:
    first, count = ranges[-1]
    return first + count


@dataclass
class _Class:
    """Axes of tensors that are cut at the same places.

    ``units`` is the number of channels that all of them have, or divide evenly into; ``parts`` how
    many parts are wanted, of at most ``most_units``. ``is_whole``: something needs a tensor whole.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    most_bytes: int = 0
    is_whole: bool = False
    parts: int = 1
    most_units: float = math.inf

    @property
    def units(self) -> int:
        return 1 if self.is_whole or not self.sizes else math.gcd(*self.sizes.values())

    @property
    def unit_ranges(self) -> tuple[Range, ...]:
        count = math.ceil(self.units / self.parts)
        even = math.ceil(count / _EVEN) * _EVEN
        same_parts = math.ceil(self.units / even) == math.ceil(self.units / count)
        if count > _EVEN and same_parts and even <= self.most_units:
            count = even
        return tuple(
            (first, min(count, self.units - first)) for first in range(0, self.units, count)
        )

    @property
    def longest(self) -> int:
        """Units of the largest part."""
        return self.unit_ranges[0][1]


class Partition:
    """The layouts of a step's tensors.

    Args:
        step: Training step with no parts.
        part_bytes: Most bytes of an activation or its gradient in a part.
        weight_bytes: Most bytes of a weight in a block, of layers that are cut at all.
    """

    def __init__(self, step: TrainingStep, part_bytes: int, weight_bytes: int) -> None:
        self._step = step
        whole = set(_whole_layers(step))
        self._axes = {op.name: None if op.layer in whole else axes_of(op.spec) for op in step.ops}
        self._parent: dict[tuple[str, int], tuple[str, int]] = {}
        self._sizes: dict[tuple[str, int], int] = {}
        self._whole: set[str] = set()
        self._only_rows: set[str] = set()
        self._outer: dict[str, int] = {}
        self._require_whole()
        self._anchor()
        self._repeat_alike()
        self._classes = self._collect(part_bytes)
        self._refine(weight_bytes)

    @property
    def layouts(self) -> dict[str, Layout]:
        """How each tensor is cut, by name."""
        return {tensor.name: self._layout(tensor.name) for tensor in self._step.tensors}

    def _layout(self, name: str) -> Layout:
        return Layout(
            name, self._ranges(name, ROWS), self._ranges(name, COLUMNS), self._outer.get(name, 1)
        )

    def _ranges(self, name: str, axis: int) -> tuple[Range, ...]:
        root = self._root((name, axis))
        found = self._classes.get(root)
        units = 1 if found is None else found.units
        size = self._sizes.get((name, axis), units)
        ranges = ((0, 1),) if found is None else found.unit_ranges
        return tuple((first * size // units, count * size // units) for first, count in ranges)

    # --- which axes belong together -------------------------------------------------------------

    def _root(self, node: tuple[str, int]) -> tuple[str, int]:
        path = []
        while (parent := self._parent.get(node, node)) != node:
            path.append(node)
            node = parent
        for each in path:
            self._parent[each] = node
        return node

    def _require_whole(self) -> None:
        """Note the tensors that nothing can cut."""
        for tensor in self._step.tensors:
            ends = tensor.kind == "activation" and tensor.persist is not None
            if tensor.kind == "input" or ends or tensor.is_table or tensor.copy_of is not None:
                self._whole.add(tensor.name)
        for op in self._step.ops:
            axes = self._axes[op.name]
            for role, name in operands(op):
                if axes is None or role not in {*axes.places, *axes.copied}:
                    self._whole.add(name)

    def _anchor(self) -> None:
        """Unite what operations cut together, and note sizes and repetitions that they state."""
        for op in self._step.ops:
            axes = self._axes[op.name]
            first: dict[str, tuple[str, int]] = {}
            for role, name in operands(op):
                place = None if axes is None else axes.places.get(role)
                if place is None:
                    continue
                if place.outer is not None:
                    self._note_outer(name, place.outer)
                if len(place.axes) <= COLUMNS:
                    self._only_rows.add(name)
                for axis, (of_op, size) in enumerate(zip(place.axes, place.sizes, strict=True)):
                    node = (name, axis)
                    if size is not None and self._sizes.setdefault(node, size) != size:
                        self._sizes[node] = math.gcd(size, self._sizes[node])
                    self._parent[self._root(node)] = self._root(first.setdefault(of_op, node))

    def _note_outer(self, name: str, outer: int) -> None:
        if self._outer.setdefault(name, outer) != outer:
            self._whole.add(name)

    def _repeat_alike(self) -> None:
        """Give the operands of functions of elements the sizes of their neighbours."""
        open_ops = [
            [name for role, name in operands(op) if role in axes.places]
            for op in self._step.ops
            if (axes := self._axes[op.name]) and None in {p.outer for p in axes.places.values()}
        ]
        changed = True
        while changed:
            changed = False
            for names in (*open_ops, *reversed(open_ops)):
                for known in [name for name in names if name in self._outer][:1]:
                    changed |= any(name not in self._outer for name in names)
                    for name in names:
                        self._take_sizes(name, known)
        self._whole.update(name for names in open_ops for name in names if name not in self._outer)
        for op in self._step.ops:
            if op.spec.family == "softmax":
                for name in (*op.reads, *op.writes):
                    self._note_rows(name, op.spec.attributes["rows"])

    def _take_sizes(self, name: str, known: str) -> None:
        """Give a tensor the sizes of another one."""
        self._note_outer(name, self._outer[known])
        for axis in (ROWS, COLUMNS):
            if (known, axis) in self._sizes:
                self._sizes.setdefault((name, axis), self._sizes[known, axis])

    def _note_rows(self, name: str, rows: int) -> None:
        """Note that the rows of a tensor cannot be cut."""
        outer = self._outer.get(name, rows)
        size = rows // outer if rows % outer == 0 else 1
        self._sizes[name, ROWS] = math.gcd(size, self._sizes.get((name, ROWS), size))

    # --- into how many parts --------------------------------------------------------------------

    def _collect(self, part_bytes: int) -> dict[tuple[str, int], _Class]:
        found: dict[tuple[str, int], _Class] = {}
        for tensor in self._step.tensors:
            for axis in (ROWS, COLUMNS):
                node = (tensor.name, axis)
                of = found.setdefault(self._root(node), _Class())
                if node in self._sizes:
                    of.sizes[f"{tensor.name}.{axis}"] = self._sizes[node]
                of.is_whole |= tensor.name in self._whole
                of.is_whole |= axis == COLUMNS and tensor.name in self._only_rows
        for tensor in self._step.tensors:
            rows, columns = (found[self._root((tensor.name, axis))] for axis in (ROWS, COLUMNS))
            if tensor.kind in {"activation", "gradient"} and not columns.sizes:
                rows.most_bytes = max(rows.most_bytes, tensor.bytes)
        for of in found.values():
            if of.units > 1 and of.most_bytes > part_bytes:
                of.most_units = max(1, of.units * part_bytes // of.most_bytes)
                of.parts = math.ceil(of.units / of.most_units)
        return found

    def _refine(self, weight_bytes: int) -> None:
        """Cut blocks of weights further, of which one axis is cut, until they are small enough."""
        weights = {
            name: (self._class(name, ROWS), self._class(name, COLUMNS))
            for op in self._step.ops
            if (axes := self._axes[op.name]) is not None
            for role, name in operands(op)
            if role == ("table" if axes.handling == "lookup" else "weight")
            if axes.handling in {"product", "lookup"}
        }
        changed = True
        while changed:
            changed = False
            for name, both in weights.items():
                whole = self._step.tensor[name].bytes
                if all(len(of.unit_ranges) == 1 for of in both):
                    continue
                shares = math.prod(of.longest / of.units for of in both)
                longer = [of for of in both if of.longest > 1]
                if whole * shares > weight_bytes and longer:
                    of = max(longer, key=lambda of: of.longest)
                    of.parts = math.ceil(of.units / math.ceil(of.longest / 2))
                    changed = True

    def _class(self, name: str, axis: int) -> _Class:
        return self._classes[self._root((name, axis))]


def _whole_layers(step: TrainingStep) -> Iterator[str]:
    """Layers that cannot be cut: lookups in activations, and losses with smoothed labels."""
    for op in step.ops:
        if op.phase != "forward":
            continue
        in_activation = (
            op.spec.family in EMBEDDINGS and step.tensor[op.reads[1]].kind != "parameter"
        )
        if in_activation or op.scalars.get("smoothing"):
            yield op.layer


def operands(op: StepOp) -> Iterator[tuple[str, str]]:
    """Roles and tensors of an operation."""
    each = (*op.spec.reads, *op.spec.writes)
    for operand, name in zip(each, (*op.reads, *op.writes), strict=True):
        yield operand.role, name


def until(name: str, done: int, all_parts: int) -> str:
    """Name of a result to which the first ``done`` parts of a chain have contributed."""
    return name if done == all_parts else f"{name}.sum{done}"

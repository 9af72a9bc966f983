"""Convolutions and linear layers between parts: an operation for each block of the weight.

A part of the output is a sum over the parts of the input, which a chain of blocks continues in
place. A part of the input gradient is such a sum over the parts of the output gradient; that of a
convolution is summed as *columns*, a number for each input channel, tap and position, and folded
when the sum is whole. The gradient of a block of the weight needs one part of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from devices.operation import OpSpec
from devices.signatures.parts import INPUT_RANGE, needs_columns
from networks.training.channels.axes import PRODUCTS
from networks.training.channels.partition import Layout, Range, operands, ranged, until
from networks.training.step import StepOp

INPUT_GRADIENT, PARAMETER_GRADIENT = "input_gradient", "parameter_gradient"


@dataclass(frozen=True)
class Blocks:
    """The blocks of a product.

    ``rows`` are the ranges of its output's channels, ``columns`` those of its input's.
    """

    op: StepOp
    layouts: Mapping[str, Layout]

    @property
    def family(self) -> str:
        return self.op.spec.family

    @property
    def has_columns(self) -> bool:
        """Whether the input gradient is summed for every tap apart."""
        return self.family == "conv2d" and needs_columns(self.op.spec.attributes)

    @property
    def _weight(self) -> Layout:
        names = (name for role, name in operands(self.op) if role.startswith("weight"))
        return self.layouts[next(names)]

    @property
    def rows(self) -> tuple[Range, ...]:
        return self._weight.rows

    @property
    def columns(self) -> tuple[Range, ...]:
        return self._weight.columns

    def forward(self) -> Iterator[StepOp]:
        """Part after part of the output, each a chain over the parts of the input."""
        for row in range(len(self.rows)):
            for column in range(len(self.columns)):
                names = self._names(row, column)
                names |= self._continued("output", names["output"], "forward", row, column)
                spec = self._spec("forward", row, column)
                yield self.op.as_part(self._name(row, column), spec, names)

    def parameter_gradient(self, row: int, column: int) -> StepOp:
        """The gradient of a block of the weight; that of the bias comes with the first column."""
        a = self._sizes(row, column)
        spec = OpSpec.of(self.op.spec.kind, **a, bias=self._bias(column))
        return self.op.as_part(self._name(row, column), spec, self._names(row, column))

    def input_gradient(self, row: int, column: int) -> StepOp:
        """What a part of the output gradient adds to a part of the input gradient.

        Where that has columns, it adds to these.
        """
        names = self._names(row, column)
        if self.has_columns:
            entry = "columns_gradient"
            whole = self._columns(column)
            names["columns_before"] = until(whole, row, len(self.rows))
            names["columns"] = until(whole, row + 1, len(self.rows))
        else:
            entry = INPUT_GRADIENT
            names |= self._continued(entry, names[entry], entry, row, column)
        spec = self._spec(entry, row, column)
        name = f"{self.op.layer}.{entry}{self._weight.suffix(row, column)}"
        return self.op.as_part(name, spec, names)

    def fold(self, column: int) -> StepOp:
        """A part of the input gradient from its columns."""
        inputs = dict(zip(INPUT_RANGE, (0, self.columns[column][1]), strict=True))
        spec = OpSpec.of("conv2d_part.fold", **self._sizes(0, column), bias=0, **inputs)
        names = {**self._names(0, column), "columns": self._columns(column)}
        return self.op.as_part(f"{self.op.layer}.fold{self._of_column(column)}", spec, names)

    def _columns(self, column: int) -> str:
        return f"{self.op.layer}.columns{self._of_column(column)}"

    def _of_column(self, column: int) -> str:
        """Range of input channels, if it is not all."""
        return f"[:,{ranged(*self.columns[column])}]" if len(self.columns) > 1 else ""

    def _bias(self, column: int) -> int:
        """Attribute that says whether a block has the bias."""
        return int(self.op.spec.attributes["bias"] and column == 0)

    def _sizes(self, row: int, column: int) -> dict[str, int]:
        """Attributes of a product with a block's channels, without its bias."""
        count_in, count_out = PRODUCTS[self.family]
        a = dict(self.op.spec.attributes)
        del a["bias"]
        return {**a, count_in: self.columns[column][1], count_out: self.rows[row][1]}

    def _spec(self, entry: str, row: int, column: int) -> OpSpec:
        return OpSpec.of(
            f"{self.family}_block.{entry}",
            **self._sizes(row, column),
            bias=self._bias(column),
            continued=int((column if entry == "forward" else row) > 0),
        )

    def _chain(self, entry: str, row: int, column: int) -> tuple[int, int]:
        """Number of a block in the chain that writes one tensor, and length of that chain."""
        return (column, len(self.columns)) if entry == "forward" else (row, len(self.rows))

    def _continued(self, role: str, name: str, entry: str, row: int, column: int) -> dict[str, str]:
        """Names of a tensor before and after a block has written to it, by role."""
        done, length = self._chain(entry, row, column)
        return {f"{role}_before": until(name, done, length), role: until(name, done + 1, length)}

    def _names(self, row: int, column: int) -> dict[str, str]:
        """Tensors of a block by role."""
        found = {}
        for role, name in operands(self.op):
            layout = self.layouts[name]
            if role.startswith("weight"):
                found[role] = layout.part(row, column)
            elif role in {"input", INPUT_GRADIENT}:
                found[role] = layout.part(column)
            else:
                found[role] = layout.part(row)
        return found

    def _name(self, row: int, column: int) -> str:
        return self.op.name + self._weight.suffix(row, column)

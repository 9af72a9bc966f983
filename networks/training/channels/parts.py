"""Convolutions and linear layers in parts: an operation for each part of the weight.

A part has some output and some input channels, and reads and writes these of whole activations. The
parts of the forward operation are one chain: for each range of the output's channels, over all
ranges of the input's. So are those of the input gradient: for each range of the input's channels,
over all ranges of the output's. The gradients of parts of the weight are tensors of their own.
"""

from __future__ import annotations

from devices.operation import OpSpec
from devices.signatures.parts import INPUT_RANGE, PART
from networks.training.channels.blocks import INPUT_GRADIENT, PARAMETER_GRADIENT, Blocks
from networks.training.channels.partition import until
from networks.training.step import StepOp


class Parts(Blocks):
    """The parts of a product of which the weight is cut and no activation is."""

    def parameter_gradient(self, row: int, column: int) -> StepOp:
        """The gradient of a part of the weight; that of the bias comes with the first column."""
        spec = self._spec(PARAMETER_GRADIENT, row, column)
        return self.op.as_part(self._name(row, column), spec, self._names(row, column))

    def fold(self, column: int) -> StepOp:
        """Some channels of the input gradient, from their columns."""
        inputs = dict(zip(INPUT_RANGE, self.columns[column], strict=True))
        spec = OpSpec.of("conv2d_part.fold", **self.op.spec.attributes, **inputs)
        names = {**self._names(0, column), "columns": self._columns(column)}
        gradient = names[INPUT_GRADIENT]
        names["input_gradient_before"] = until(gradient, column, len(self.columns))
        names[INPUT_GRADIENT] = until(gradient, column + 1, len(self.columns))
        return self.op.as_part(f"{self.op.layer}.fold{self._of_column(column)}", spec, names)

    def _chain(self, entry: str, row: int, column: int) -> tuple[int, int]:
        rows, columns = len(self.rows), len(self.columns)
        done = row * columns + column if entry == "forward" else column * rows + row
        return done, rows * columns

    def _spec(self, entry: str, row: int, column: int) -> OpSpec:
        ranges = (*self.rows[row], *self.columns[column])
        a = dict(self.op.spec.attributes)
        if entry in {"forward", PARAMETER_GRADIENT}:
            a["bias"] = self._bias(column)
        of_part = dict(zip((*PART, *INPUT_RANGE), ranges, strict=True))
        return OpSpec.of(f"{self.family}_part.{entry}", **a, **of_part)

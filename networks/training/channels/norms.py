"""Layer norm and RMS norm over parts of the features.

Chains through the parts of the input leave the sums of each row, from which its statistics follow;
then each part of the output needs its part of the input alone. The input gradient needs such sums
too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from devices.operation import OpSpec
from networks.training.channels.partition import Layout, operands, until
from networks.training.step import StepOp

_SUMS = ("sums", "squares")
_GRADIENT_SUMS = ("gradient_sums", "gradient_products")


def norm_in_parts(op: StepOp, layouts: Mapping[str, Layout]) -> Iterator[StepOp]:
    """The chains and parts of a norm, or of its input gradient."""
    parts = _Parts(op, layouts)
    if op.phase == "forward":
        if op.spec.family == "layer_norm":
            yield from parts.chain("sum", ("sums",))
        yield from parts.chain("squares", ("squares",))
        yield parts.statistics()
        yield from parts.each("forward")
    else:
        yield from parts.chain("gradient_sums", _GRADIENT_SUMS)
        for part in parts.each("input_gradient"):
            yield part if op.in_place else replace(part, in_place={})


class _Parts:
    def __init__(self, op: StepOp, layouts: Mapping[str, Layout]) -> None:
        self._op = op
        self._layouts = layouts
        self._names = dict(operands(op))
        self._cut = layouts[self._names["input"]]

    def chain(self, entry: str, sums: tuple[str, ...]) -> Iterator[StepOp]:
        """Partial sums, which every part continues."""
        last = len(self._cut.rows)
        for row in range(last):
            found = self._of_part(row)
            for role in sums:
                found[f"{role}_before"] = until(found[role], row, last)
                found[role] = until(found[role], row + 1, last)
            yield self._operation(entry, row, found)

    def each(self, entry: str) -> Iterator[StepOp]:
        """Part by part of a result."""
        for row in range(len(self._cut.rows)):
            yield self._operation(entry, row, self._of_part(row))

    def statistics(self) -> StepOp:
        """Mean and variance, or mean square, of each row."""
        spec = OpSpec.of(f"{self._op.spec.family}_block.statistics", **self._op.spec.attributes)
        return self._op.as_part(f"{self._op.layer}.statistics", spec, self._of_part(0))

    def _of_part(self, row: int) -> dict[str, str]:
        """Tensors of a part, and those of rows, by role."""
        sums = {role: f"{self._op.layer}.{role}" for role in (*_SUMS, *_GRADIENT_SUMS)}
        return sums | {role: self._layouts[name].part(row) for role, name in self._names.items()}

    def _operation(self, entry: str, row: int, names: Mapping[str, str]) -> StepOp:
        place, a = self._cut.place(row, 0), self._op.spec.attributes
        sizes = {
            "first": place.first * a["features"] // place.whole_rows,
            "channels": place.rows * a["features"] // place.whole_rows,
        }
        spec = OpSpec.of(f"{self._op.spec.family}_block.{entry}", **a, **sizes)
        return self._op.as_part(f"{self._op.layer}.{entry}{self._cut.suffix(row)}", spec, names)

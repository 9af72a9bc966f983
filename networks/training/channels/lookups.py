"""Lookups in tables in parts.

A part of the features of the output is a chain over the parts of the table's rows, each of which
writes the rows that it has. The gradient of a part of the table needs a part of the output's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from devices.operation import OpSpec
from networks.training.channels.partition import Layout, operands, until
from networks.training.step import StepOp


def lookups(op: StepOp, layouts: Mapping[str, Layout]) -> Iterator[StepOp]:
    """The chains of a lookup, or the gradients of the parts of its table."""
    names = dict(operands(op))
    is_forward = op.phase == "forward"
    table = layouts[names["table" if is_forward else "table_gradient"]]
    for column in range(len(table.columns)):
        for row in range(len(table.rows)):
            found = {"indices": names["indices"]}
            if is_forward:
                output = layouts[names["output"]].part(column)
                found["table"] = table.part(row, column)
                found["output_before"] = until(output, row, len(table.rows))
                found["output"] = until(output, row + 1, len(table.rows))
            else:
                found["output_gradient"] = layouts[names["output_gradient"]].part(column)
                found["table_gradient"] = table.part(row, column)
            yield _operation(op, table, row, column, found)


def _operation(
    op: StepOp, table: Layout, row: int, column: int, names: Mapping[str, str]
) -> StepOp:
    a, entry = op.spec.attributes, op.spec.kind.partition(".")[2]
    place = table.place(row, column)
    sizes = {
        "first": place.first * a["vocabulary"] // place.whole_rows,
        "channels": place.rows * a["vocabulary"] // place.whole_rows,
        "features": place.columns * a["features"] // place.whole_columns,
    }
    spec = OpSpec.of(f"{op.spec.family}_part.{entry}", **{**a, **sizes})
    return op.as_part(op.name + table.suffix(row, column), spec, names)

"""Nodes that read constants alone, computed by the reference implementation of ``onnx``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import NodeProto

FOLDED = frozenset(
    {
        *("Shape", "Size", "Constant", "ConstantOfShape", "Range", "Identity", "Cast", "Expand"),
        *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice"),
        *("Gather", "GatherElements", "GatherND", "ScatterND", "ScatterElements"),
        *("Tile", "Trilu", "CumSum", "Where", "Pad", "EyeLike", "Clip"),
        *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Neg", "Abs", "Sign", "Floor", "Ceil", "Round"),
        *("Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tanh", "Min", "Max", "Sum"),
        *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not", "And", "Or", "Xor"),
        *("ReduceProd", "ReduceSum", "ReduceMean", "ReduceMin", "ReduceMax"),
    }
)
"""Operations of which the result is computed here if all operands are constant."""


def folded(
    node: NodeProto, version: int, operands: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[Any], ...] | None:
    """Results of a node; None if it cannot be computed. ``version`` is that of its set."""
    from onnx.reference import ReferenceEvaluator

    try:
        if node.op_type == "GatherElements":  # the reference takes from 64 elements at most
            data, indices = (operands[name] for name in node.input)
            axis = next((each.i for each in node.attribute if each.name == "axis"), 0)
            return (np.take_along_axis(data, indices, axis),)
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(node, opsets={"": version}).run(None, dict(operands))
    except Exception:
        return None
    return tuple(np.asarray(each) for each in found)

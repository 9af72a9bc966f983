"""ONNX operations that can be trained, and the ATen operations that they become."""

from __future__ import annotations

from collections.abc import Mapping

from networks.onnx.operation import Translation
from networks.onnx.operations.elementwise import ELEMENTWISE
from networks.onnx.operations.layers import LAYERS
from networks.onnx.operations.recurrent import RECURRENT
from networks.onnx.operations.shapes import SHAPES
from networks.onnx.operations.windows import WINDOWS

__all__ = ["TRANSLATIONS"]

TRANSLATIONS: Mapping[str, Translation] = {
    **ELEMENTWISE,
    **LAYERS,
    **RECURRENT,
    **SHAPES,
    **WINDOWS,
}
"""By the name of the operation in ONNX's own set."""

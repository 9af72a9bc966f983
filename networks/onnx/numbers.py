"""Arrays of an ONNX file under the names of its initializers and tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from networks.exported.errors import ExportError
from networks.exported.program import BOOL, FLOAT32, INT64, TensorMeta
from networks.exported.weights import Arrays

_TYPES: Mapping[str, int] = {
    **{"float32": FLOAT32, "int64": INT64, "int32": INT64, "bool": BOOL, "uint8": 1, "int8": 2},
    **{"int16": 3, "float16": 6, "float64": 8, "bfloat16": 13},
}
"""A program's element types; it computes with whole numbers of one width."""

_OTHER_TYPE = 0


def meta_of(dtype: Any, shape: tuple[int, ...], requires_grad: bool = False) -> TensorMeta:
    """Layout of a tensor in row-major order."""
    strides: list[int] = []
    reach = 1
    for size in reversed(shape):
        strides.insert(0, reach)
        reach *= max(size, 1)
    number = _TYPES.get(np.dtype(dtype).name, _OTHER_TYPE)
    return TensorMeta(number, shape, tuple(strides), 0, requires_grad)


class Numbers(Arrays):
    """Arrays in memory, each of its own."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], trained: Collection[str] = ()) -> None:
        self._arrays, self._trained = arrays, trained

    def __getitem__(self, name: str) -> NDArray[Any]:
        array = self._arrays[name]
        return array.astype(np.int64) if array.dtype == np.int32 else array

    def first_name(self, name: str) -> str:
        if name not in self._arrays:
            raise ExportError(f"nothing is named {name!r}")
        return name

    def meta(self, name: str) -> TensorMeta:
        array = self._arrays[name]
        return meta_of(array.dtype, array.shape, name in self._trained)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

"""Parameters that the network has in another order than the file's initializers.

Linear layers take weights [out, in], and recurrent layers one matrix of gates for each direction.
ONNX also has weights [in, out], and packs directions, gates in another order and both biases into
one array. Such an initializer is laid out once, when the file is read; whatever is written for it
has the file's order again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Blocks: TypeAlias = Callable[[NDArray[Any]], Sequence[NDArray[Any]]]
"""Views of parts of an array, in the order in which a parameter has them along its first axis."""


@dataclass(frozen=True)
class Layout:
    """A parameter that consists of blocks of the array ``initializer``, which has ``shape``."""

    initializer: str
    shape: tuple[int, ...]
    blocks: Blocks

    def read(self, array: NDArray[Any]) -> NDArray[Any]:
        """The parameter's values in the initializer."""
        return np.concatenate(self.blocks(array))

    def write(self, values: NDArray[Any], array: NDArray[Any]) -> None:
        """Write the parameter's values, in any shape, to the initializer."""
        left = values.reshape(-1)
        for block in self.blocks(array):
            block[...] = left[: block.size].reshape(block.shape)
            left = left[block.size :]


def transposed(array: NDArray[Any]) -> Sequence[NDArray[Any]]:
    """A matrix of which the axes are exchanged."""
    return [array.T]


@dataclass(frozen=True)
class Restoring:
    """Puts parameters into the initializers that they are parts of; ``layouts`` by parameter."""

    layouts: Mapping[str, Layout]

    def __call__(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Arrays by the file's names; parts of an initializer that are not given are zero."""
        found: dict[str, NDArray[Any]] = {}
        for name, array in arrays.items():
            layout = self.layouts.get(name)
            if layout is None:
                found[name] = array
                continue
            whole = found.setdefault(layout.initializer, np.zeros(layout.shape, array.dtype))
            layout.write(array, whole)
        return found

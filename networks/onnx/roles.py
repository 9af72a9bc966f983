"""Initializers by what they are for: trained, kept as they are, or constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import NodeProto

_SETTINGS: Mapping[str, frozenset[int]] = {
    **{"Clip": frozenset({1, 2}), "Dropout": frozenset({1, 2}), "Pad": frozenset({1, 2, 3})},
    **{"Resize": frozenset({1, 2, 3}), "Upsample": frozenset({1}), "Pow": frozenset({1})},
    "Where": frozenset({0}),
}
"""Operands that are settings, by operation."""

_STATISTICS: Mapping[str, frozenset[int]] = {"BatchNormalization": frozenset({3, 4})}

_HIDING = -1e4
"""A number so low stands in a mask that is added to scores, and in no weight."""


@dataclass(frozen=True)
class Roles:
    """Arrays by name. ``kept`` are statistics of norms, which are parameters but not trained."""

    trained: Mapping[str, NDArray[Any]]
    kept: Mapping[str, NDArray[Any]]
    constants: Mapping[str, NDArray[Any]]

    @classmethod
    def of(
        cls,
        nodes: Sequence[NodeProto],
        initializers: Mapping[str, NDArray[Any]],
        constants: Mapping[str, NDArray[Any]],
    ) -> Roles:
        """Divide the initializers by the nodes that read them.

        A number without axes is a constant (exporters state epsilons and exponents so), as is a
        mask that is added to scores. What is a statistic anywhere is trained nowhere: exporters
        keep equal arrays once, and read them through ``Identity``.
        """
        read, statistics = set(), set()
        alias: dict[str, str] = {}
        for node in nodes:
            if node.op_type == "Identity" and len(node.input) == len(node.output) == 1:
                alias[node.output[0]] = alias.get(node.input[0], node.input[0])
            for position, stated in enumerate(node.input):
                name = alias.get(stated, stated)
                if position in _STATISTICS.get(node.op_type, ()):
                    statistics.add(name)
                elif position not in _SETTINGS.get(node.op_type, ()):
                    read.add(name)
        trained, kept, others = {}, {}, dict(constants)
        for name, array in initializers.items():
            if name in statistics:
                kept[name] = array
            elif name in read and _is_trainable(array):
                trained[name] = array
            else:
                others[name] = array
        return cls(trained, kept, others)


def _is_trainable(array: NDArray[Any]) -> bool:
    has_numbers = array.ndim > 0 and array.size > 0
    return array.dtype == np.float32 and has_numbers and float(array.min()) > _HIDING

"""Batches: labelled samples, as one training step after another takes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Batches:
    """``samples``: by the input's name, float32 or int32, [samples, *shape of one].
    ``constant``: inputs that are the same at every step."""

    size: int
    samples: Mapping[str, NDArray[Any]]
    constant: Mapping[str, NDArray[Any]]

    @property
    def sample_count(self) -> int:
        return len(next(iter(self.samples.values())))

    @property
    def count(self) -> int:
        """So many batches differ; behind them the first one comes again."""
        return self.sample_count // math.gcd(self.sample_count, self.size)

    def batch(self, index: int) -> dict[str, NDArray[Any]]:
        """Every input of step ``index``, counted from 0: [size, *shape of one sample]. Samples come
        in their order, the first again after the last."""
        chosen = (index * self.size + np.arange(self.size)) % self.sample_count
        return {
            **{name: values[chosen] for name, values in self.samples.items()},
            **self.constant,
        }

"""Batches: labelled samples in the order in which training steps use them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from networks.training.accumulation import part_of


@dataclass(frozen=True)
class Batches:
    """Samples for any number of training steps, ``size`` of them in each.

    ``samples`` holds, for each input's name, a float32 or int32 array [samples, *shape of one].
    ``constant`` holds the inputs that are the same in every step. A step that takes a batch in
    ``parts`` has inputs of its own for each of them.
    """

    size: int
    samples: Mapping[str, NDArray[Any]]
    constant: Mapping[str, NDArray[Any]]
    parts: int = 1

    @property
    def sample_count(self) -> int:
        """Number of distinct samples."""
        return len(next(iter(self.samples.values())))

    @property
    def count(self) -> int:
        """Number of distinct batches, after which the first one is repeated."""
        return self.sample_count // math.gcd(self.sample_count, self.size)

    @property
    def whole(self) -> tuple[Batches, int]:
        """The samples that fill whole batches, and the number of those left over."""
        used = self.sample_count // self.size * self.size
        samples = {name: values[:used] for name, values in self.samples.items()}
        return replace(self, samples=samples), self.sample_count - used

    def batch(self, index: int) -> dict[str, NDArray[Any]]:
        """Select the inputs of one step.

        Samples are used in order; after the last one comes the first again.

        Args:
            index: Number of the step, from 0.

        Returns:
            For each input's name, an array [size / parts, *shape of one sample], and the constant
            inputs.
        """
        chosen = (index * self.size + np.arange(self.size)) % self.sample_count
        inputs = dict(self.constant)
        for name, values in self.samples.items():
            for number, part in enumerate(np.split(chosen, self.parts), start=1):
                inputs[part_of(name, number, self.parts)] = values[part]
        return inputs

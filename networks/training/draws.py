"""Random numbers that are the same on every platform and with every version of NumPy."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 20


def uniform(shape: tuple[int, ...], *key: str | int) -> NDArray[np.float32]:
    """Draw numbers in [-1, 1), in steps of 2⁻²³; every key has its own stream."""
    generator = _generator(key)
    values = np.empty(math.prod(shape), np.float32)
    for start in range(0, values.size, _CHUNK):
        part = values[start : start + _CHUNK]
        part[:] = (generator.random_raw(part.size) >> np.uint64(40)) * 2.0**-23 - 1.0
    return values.reshape(shape)


def below(bound: int, count: int, *key: str | int) -> NDArray[np.int64]:
    """Draw ``count`` whole numbers from 0 to ``bound`` - 1.

    The bias, ``bound`` in 2⁶⁴, is negligible.
    """
    return (_generator(key).random_raw(count) % np.uint64(bound)).astype(np.int64)


def permutation(count: int, *key: str | int) -> NDArray[np.int64]:
    """Draw a random order of the numbers from 0 to ``count`` - 1."""
    return np.argsort(_generator(key).random_raw(count), kind="stable").astype(np.int64)


def _generator(key: tuple[str | int, ...]) -> np.random.PCG64:
    """Create the generator of a key.

    NumPy guarantees that this generator's raw stream and seeding never change, but not the way in
    which other numbers are derived from the stream.
    """
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.PCG64(int.from_bytes(digest, "little"))

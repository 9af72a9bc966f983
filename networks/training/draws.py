"""Random numbers that are the same for ever: on every platform, with every version of NumPy."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 20


def uniform(shape: tuple[int, ...], *key: str | int) -> NDArray[np.float32]:
    """In [-1, 1), in steps of 2⁻²³. Every key has a stream of its own."""
    generator = _generator(key)
    values = np.empty(math.prod(shape), np.float32)
    for start in range(0, values.size, _CHUNK):
        part = values[start : start + _CHUNK]
        part[:] = (generator.random_raw(part.size) >> np.uint64(40)) * 2.0**-23 - 1.0
    return values.reshape(shape)


def below(bound: int, count: int, *key: str | int) -> NDArray[np.int64]:
    """Whole numbers from 0 to ``bound`` - 1; the bias, of ``bound`` in 2⁶⁴, is of no account."""
    return (_generator(key).random_raw(count) % np.uint64(bound)).astype(np.int64)


def permutation(count: int, *key: str | int) -> NDArray[np.int64]:
    return np.argsort(_generator(key).random_raw(count), kind="stable").astype(np.int64)


def _generator(key: tuple[str | int, ...]) -> np.random.PCG64:
    """NumPy promises that this generator's raw stream and its seeding never change; how other
    numbers are made from it, it does not."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.PCG64(int.from_bytes(digest, "little"))

"""First fit in given orders, and the search over orders of ``first_fit.c``."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from solver.addresses.packing import Packing
from solver.compiled import load_compiled

_SEED = 1


class _ProblemData(ctypes.Structure):
    """The struct ``Problem`` of ``first_fit.c``."""

    _fields_ = (
        ("block_count", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("span_start", "span_from", "span_to", "span_bytes")),
        ("target", ctypes.c_int64),
    )


@cache
def _library() -> ctypes.CDLL:
    loaded = load_compiled(Path(__file__).with_name("first_fit.c"))
    loaded.first_fit_open.restype = ctypes.c_void_p
    loaded.first_fit_open.argtypes = [ctypes.POINTER(_ProblemData), ctypes.c_uint64]
    loaded.first_fit_place.restype = None
    loaded.first_fit_place.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    loaded.first_fit_search.restype = ctypes.c_int64
    loaded.first_fit_search.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_double]
    loaded.first_fit_best.restype = ctypes.c_int64
    loaded.first_fit_best.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    loaded.first_fit_close.restype = None
    loaded.first_fit_close.argtypes = [ctypes.c_void_p]
    return loaded


class FirstFit:
    """Orders of the blocks of ``packing``, each placed as low as it fits; the best is kept.

    The target is the arena at which the search ends.

    Raises:
        BuildFailed: There is no C compiler, or it failed.
    """

    def __init__(self, packing: Packing, target_bytes: int) -> None:
        shapes = packing.shapes
        spans = [span for shape in shapes for span in shape]
        self._count = len(shapes)
        self._kept = (  # keeps alive the memory that C points to
            np.cumsum([0, *map(len, shapes)], dtype=np.int32),
            np.array([span.start for span in spans], np.int32),
            np.array([span.end for span in spans], np.int32),
            np.array([span.bytes for span in spans], np.int64),
        )
        pointers = (array.ctypes.data for array in self._kept)
        data = _ProblemData(self._count, *pointers, target_bytes)
        self._library = _library()
        self._handle = self._library.first_fit_open(ctypes.byref(data), _SEED)
        if not self._handle:
            raise MemoryError("not enough memory to search for addresses")
        weakref.finalize(self, self._library.first_fit_close, self._handle)

    def place(self, order: Sequence[int]) -> None:
        """Place the blocks in this order, which is a permutation of their numbers."""
        given = np.array(order, np.int32)
        self._library.first_fit_place(self._handle, given.ctypes.data)

    def search(self, placements: int, seconds: float) -> int:
        """Search from the orders placed so far, until the target is reached or either has run out.

        Returns how many placements are left.
        """
        return int(self._library.first_fit_search(self._handle, placements, seconds))

    @property
    def best(self) -> tuple[int, list[int]]:
        """The smallest arena so far, and the offsets in it."""
        offsets = np.empty(self._count, np.int64)
        arena_bytes = self._library.first_fit_best(self._handle, offsets.ctypes.data)
        return int(arena_bytes), offsets.tolist()

"""The C library of annealing, compiled on first use for this computer."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from solver.compiled import load_compiled

_FILES = ("sequence.c", "sequence.h", "moves.c", "blocks.c", "search.c")


class ProblemData(ctypes.Structure):
    """The struct ``Problem`` of ``sequence.h``."""

    _fields_ = (
        ("event_count", ctypes.c_int32),
        ("tensor_count", ctypes.c_int32),
        ("op_count", ctypes.c_int32),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("read_start", "reads", "write_start", "writes", "consume_start", "consumes"),
                *("cost", "seconds", "extra_bytes", "repeatable", "in_storage"),
                *("bytes", "save_cost", "save_seconds", "compute_of", "page_in_of"),
                *("workspace_bytes", "place_of"),
            )
        ),
        ("ram_bytes", ctypes.c_double),
        ("deadline_s", ctypes.c_double),
        ("base_cost", ctypes.c_double),
        ("base_seconds", ctypes.c_double),
    )


@cache
def library() -> ctypes.CDLL:
    """Load the library, and compile it if needed.

    Raises :class:`~devices.errors.BuildFailed`.
    """
    loaded = load_compiled(*map(Path(__file__).with_name, _FILES))
    loaded.sequence_open.restype = ctypes.c_void_p
    loaded.sequence_open.argtypes = [
        ctypes.POINTER(ProblemData),
        ctypes.c_int32,
        ctypes.c_int32,
        ctypes.c_uint64,
    ]
    loaded.sequence_restart.restype = ctypes.c_int32
    loaded.sequence_restart.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_void_p,
    ]
    loaded.sequence_limit_ram.restype = None
    loaded.sequence_limit_ram.argtypes = [ctypes.c_void_p, ctypes.c_double]
    loaded.sequence_retime.restype = None
    loaded.sequence_retime.argtypes = [ctypes.c_void_p, ctypes.c_double]
    loaded.sequence_pack.restype = None
    loaded.sequence_pack.argtypes = [ctypes.c_void_p, ctypes.c_double]
    loaded.sequence_best_addresses.restype = ctypes.c_int32
    loaded.sequence_best_addresses.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    loaded.sequence_anneal.restype = None
    loaded.sequence_anneal.argtypes = [ctypes.c_void_p, *[ctypes.c_double] * 4]
    loaded.sequence_best.restype = ctypes.c_int32
    loaded.sequence_best.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_double),
    ]
    loaded.sequence_close.restype = None
    loaded.sequence_close.argtypes = [ctypes.c_void_p]
    return loaded

"""The C library of annealing, compiled on first use for this computer."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from devices.documents.readable import file_failure
from devices.errors import BuildFailed
from devices.user_cache import user_cache

_SOURCE = Path(__file__).with_name("sequence.c")
_FLAGS = ("-O3", "-march=native", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-fPIC", "-shared")


class ProblemData(ctypes.Structure):
    """The struct ``Problem`` of ``sequence.c``."""

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
            )
        ),
        ("ram_bytes", ctypes.c_double),
        ("deadline_s", ctypes.c_double),
        ("base_cost", ctypes.c_double),
        ("base_seconds", ctypes.c_double),
    )


@cache
def library() -> ctypes.CDLL:
    """Load the library, and compile it if needed. Raises :class:`BuildFailed`."""
    loaded = ctypes.CDLL(str(_compiled()))
    loaded.sequence_open.restype = ctypes.c_void_p
    loaded.sequence_open.argtypes = [
        ctypes.POINTER(ProblemData),
        ctypes.c_int32,
        ctypes.c_int32,
        ctypes.c_uint64,
    ]
    loaded.sequence_restart.restype = ctypes.c_int32
    loaded.sequence_restart.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32]
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


def _compiled() -> Path:
    """Path of the library for this source, compiler and processor; compile it if missing."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise BuildFailed("no C compiler was found (sudo apt install gcc libc6-dev)")
    key = hashlib.sha256(
        b"\0".join(
            [_SOURCE.read_bytes(), compiler.encode(), _processor(), *map(str.encode, _FLAGS)]
        )
    ).hexdigest()[:16]
    path = user_cache() / f"sequence-{key}.so"
    if path.exists():
        return path
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as directory:
            made = Path(directory) / path.name
            done = subprocess.run(
                [compiler, *_FLAGS, "-o", str(made), str(_SOURCE), "-lm"],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                last = done.stderr.strip().splitlines()[-1:] or ["it printed no message"]
                raise BuildFailed(f"{compiler} failed: {last[0]}")
            made.replace(path)
    except OSError as error:
        raise BuildFailed(
            f"the annealing library cannot be stored: {file_failure(error)}"
        ) from None
    return path


def _processor() -> bytes:
    """Identification of the processor, on which ``-march=native`` depends."""
    try:
        information = Path("/proc/cpuinfo").read_bytes()
    except OSError:
        return sys.platform.encode()
    lines = information.split(b"\n\n")[0].splitlines()
    return b"".join(
        line for line in lines if line.startswith((b"model name", b"flags", b"Features"))
    )

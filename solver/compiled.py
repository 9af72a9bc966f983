"""C sources of the solver, compiled on first use for this computer."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from devices.claims.scratch import ScratchDirectory
from devices.documents.readable import file_failure
from devices.errors import BuildFailed
from devices.user_cache import user_cache

_FLAGS = ("-O3", "-march=native", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-fPIC", "-shared")


def load_compiled(source: Path) -> ctypes.CDLL:
    """Load the library of a C source, and compile it if needed. Raises :class:`BuildFailed`."""
    return ctypes.CDLL(str(_compiled(source)))


def _compiled(source: Path) -> Path:
    """Path of the library for this source, compiler and processor; compile it if missing."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise BuildFailed("no C compiler was found (sudo apt install gcc libc6-dev)")
    key = hashlib.sha256(
        b"\0".join([source.read_bytes(), compiler.encode(), _processor(), *map(str.encode, _FLAGS)])
    ).hexdigest()[:16]
    path = user_cache() / f"{source.stem}-{key}.so"
    if path.exists():
        return path
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ScratchDirectory(path.parent, f".{source.stem}-") as scratch:
            made = scratch.path / path.name
            done = subprocess.run(
                [compiler, *_FLAGS, "-o", str(made), str(source), "-lm"],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "TMPDIR": str(scratch.path)},  # a killed one leaves files
            )
            if done.returncode:
                last = done.stderr.strip().splitlines()[-1:] or ["it printed no message"]
                raise BuildFailed(f"{compiler} failed: {last[0]}")
            made.replace(path)
    except OSError as error:
        raise BuildFailed(
            f"the library of {source.name} cannot be stored: {file_failure(error)}"
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

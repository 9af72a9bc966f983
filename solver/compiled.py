"""C sources of the solver, compiled on first use for this computer."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from devices.claims.scratch import ScratchDirectory
from devices.documents.readable import file_failure
from devices.errors import BuildFailed
from devices.user_cache import user_cache

_FLAGS = ("-O3", "-march=native", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-fPIC", "-shared")


def load_compiled(*files: Path) -> ctypes.CDLL:
    """Load the library of C sources, and compile it if needed.

    The first file names the library; files that are no sources are what sources include. Raises
    :class:`BuildFailed`.
    """
    return ctypes.CDLL(str(_compiled(files)))


def _compiled(files: Sequence[Path]) -> Path:
    """Path of the library for these files, compiler and processor; compile it if missing."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise BuildFailed("no C compiler was found (sudo apt install gcc libc6-dev)")
    contents = [file.read_bytes() for file in files]
    key = hashlib.sha256(
        b"\0".join([*contents, compiler.encode(), _processor(), *map(str.encode, _FLAGS)])
    ).hexdigest()[:16]
    name = files[0].stem
    sources = [str(file) for file in files if file.suffix == ".c"]
    path = user_cache() / f"{name}-{key}.so"
    if path.exists():
        return path
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ScratchDirectory(path.parent, f".{name}-") as scratch:
            made = scratch.path / path.name
            done = subprocess.run(
                [compiler, *_FLAGS, "-o", str(made), *sources, "-lm"],
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
            f"the library of {files[0].name} cannot be stored: {file_failure(error)}"
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

"""Sources of the programs that run on boards: where they are, and their hash.

Nothing that builds is imported here, so that a campaign can name its cells quickly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

ONBOARD = Path(__file__).parents[2] / "onboard"
KERNELS = ONBOARD / "kernels"
EXECUTOR = ONBOARD / "executor"
HARNESS = ONBOARD / "harness"

Files: TypeAlias = Mapping[str, bytes]
"""Contents by path."""


def sources_hash(files: Files, flags: Sequence[str]) -> str:
    """SHA-256 of everything that determines the object code of these sources, except the compiler.

    The hash of the kernels identifies a profile's build.

    Args:
        files: Contents by path.
        flags: Compiler flags.
    """
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    digest.update("\0".join(flags).encode())
    return digest.hexdigest()


def read_sources(directory: Path) -> Files:
    """Read C sources and headers of a directory and its folders, by path below it.

    Args:
        directory: The directory, for example :data:`KERNELS`.
    """
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.suffix in {".c", ".h"}
    }

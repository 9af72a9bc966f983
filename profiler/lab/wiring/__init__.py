"""A card on an emulated machine that has no slot for one, by a plugin for QEMU."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from devices.errors import BuildFailed
from profiler.building.programs import how_to_install
from profiler.lab.cache import BuildCache, digest

_SOURCE = Path(__file__).parent / "spi_card.c"
_COMMAND = ("cc", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC")


def card_wiring(progress: Callable[[str], None]) -> Path:
    """The plugin, compiled for this computer unless cached. See ``spi_card.c``.

    Raises :class:`~devices.errors.BuildFailed`.
    """
    key = digest(platform.machine(), " ".join(_COMMAND), _SOURCE.read_bytes())
    with BuildCache(progress) as cache:
        return cache.directory("wiring", key, _build) / "spi_card.so"


def _build(directory: Path) -> None:
    if shutil.which(_COMMAND[0]) is None:
        raise BuildFailed(
            "wiring an emulated card needs cc, which this computer does not have",
            remedy=how_to_install(_COMMAND[:1]),
        )
    command = [*_COMMAND, str(_SOURCE), "-o", str(directory / "spi_card.so")]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise BuildFailed(f"the wiring of an emulated card cannot be compiled: {result.stderr}")

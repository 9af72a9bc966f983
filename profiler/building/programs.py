"""Programs on this computer that building for a board, or emulating it, needs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from devices.description import CrossToolchain, DeviceDescription
from devices.documents.explain import shown
from devices.errors import BuildFailed

_SYSTEM_DIRECTORIES = ("/usr/sbin", "/sbin")

_FOR_LINUX = ("apt-get", "dpkg-deb", "make", "aarch64-linux-gnu-gcc", "mke2fs")
"""Programs that make the image of an emulated Linux board and its card."""

_PACKAGES = {
    "cc": "gcc",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "apt-get": "apt",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "dpkg-deb": "dpkg",
    "mke2fs": "e2fsprogs",
    "qemu-system-aarch64": "qemu-system-arm",
    "setpriv": "util-linux",
}
"""Debian's packages whose names differ from their programs'."""

_PACKAGES_FORM = re.compile(r"[a-z0-9][a-z0-9+.-]+( [a-z0-9][a-z0-9+.-]+)*")
"""Names of Debian's packages, as Debian's policy allows them."""


def require_programs(description: DeviceDescription) -> None:
    """Check that all programs for building for a board, and emulating it, exist.

    Raises :class:`~devices.errors.BuildFailed`, which names all missing programs and one command
    that installs them.
    """
    missing = [name for name in _needed(description) if program_path(name) is None]
    if missing:
        raise BuildFailed(
            f"{description.name} needs {_listed(missing)}, which this computer does not have",
            remedy=how_to_install(missing),
        )


def program_path(name: str) -> Path | None:
    """Path of a program, also outside an ordinary user's PATH (programs for administrators)."""
    directories = (os.environ.get("PATH", os.defpath), *_SYSTEM_DIRECTORIES)
    found = shutil.which(name, path=os.pathsep.join(directories))
    return None if found is None else Path(found)


def how_to_install(programs: Sequence[str]) -> str:
    """Advice on missing programs, whose names may be a description's.

    It is a command to paste if all of their packages may exist.
    """
    packages = list(dict.fromkeys(map(package_of, programs)))
    odd = [program for program in programs if not _PACKAGES_FORM.fullmatch(package_of(program))]
    if odd:
        return f"correct the description: no package can be named {_listed([*map(shown, odd)])}"
    return f"install with: sudo apt install {' '.join(packages)}"


def package_of(program: str) -> str:
    """Debian's package (or packages) of a program; for unlisted compilers, derived from their
    name."""
    name = Path(program).name
    if name in _PACKAGES:
        return _PACKAGES[name]
    target, _, tool = name.rpartition("-")
    return f"{tool}-{target}" if target and tool in {"gcc", "g++"} else name


def _needed(description: DeviceDescription) -> list[str]:
    needed = []
    if isinstance(description.toolchain, CrossToolchain):
        needed.append(shlex.split(description.toolchain.compiler)[0])
    if description.emulator is not None:
        needed += [description.emulator.program, "setpriv"]
        if description.firmware is None:
            needed += _FOR_LINUX
    return list(dict.fromkeys(needed))


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))

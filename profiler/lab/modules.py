"""Kernel of the emulated Linux board, with modules that Debian's arm64 kernel lacks.

The raw flash simulator, the emulated I²C bus and the INA2xx driver are in the kernel's sources, but
disabled in Debian's configuration. They are built against Debian's headers for exactly the
downloaded kernel. Modules that a later Debian kernel includes are taken from there.
"""

from __future__ import annotations

import lzma
import os
import re
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from devices.errors import BuildFailed
from profiler.lab.packages import package_members, unpack

CROSS_PREFIX = "aarch64-linux-gnu-"

Progress: TypeAlias = Callable[[str], None]

# Modules that the guest loads, by modprobe's names; their dependencies are added.
_WANTED = (
    "virtio_pci",
    "virtio_net",
    "sdhci_pci",
    "ext4",
    "crc32c_generic",  # loaded by ext4 at run time, not a declared dependency
    "mtd",
    "cmdlinepart",
    "nandsim",
    "i2c_dev",
    "i2c_stub",
    "ina2xx",
)

# Paths in the kernel's sources of the modules that Debian leaves out.
_SOURCES = {
    "nand": "drivers/mtd/nand/raw",
    "nandsim": "drivers/mtd/nand/raw/nandsim.c",
    "cmdlinepart": "drivers/mtd/parsers/cmdlinepart.c",
    "i2c_stub": "drivers/i2c/i2c-stub.c",
    "ina2xx": "drivers/hwmon/ina2xx.c",
}
_NAND_HEADER = "drivers/mtd/nand/raw/internals.h"

_BUILD_TIMEOUT_S = 900.0
_IMAGE_MAGIC = b"ARM\x64"  # at byte 56: Documentation/arm64/booting.rst
_IMAGE_MAGIC_OFFSET = 56


@dataclass(frozen=True)
class Kernel:
    """A kernel with its modules. ``image`` is uncompressed. ``modules`` are loadable files by
    modprobe's name, with all their dependencies."""

    release: str
    image: Path
    modules: Mapping[str, Path]

    @classmethod
    def load(cls, directory: Path) -> Kernel:
        """Load what :func:`build_kernel` wrote."""
        return cls(
            release=(directory / "release").read_text(encoding="utf-8"),
            image=directory / "Image",
            modules={_module_name(path.name): path for path in directory.glob("*.ko")},
        )

    def modules_dep(self) -> str:
        """The file in which modprobe looks up a module's dependencies, in order of use."""
        lines = []
        for name, path in sorted(self.modules.items()):
            needed = [self.modules[other].name for other in dependencies(name, self.modules)]
            lines.append(f"{path.name}: {' '.join(reversed(needed))}".rstrip())
        return "\n".join(lines) + "\n"


def build_kernel(packages: Path, directory: Path, progress: Progress) -> None:
    """Build from the downloaded packages in ``packages`` into an empty directory.

    Raises :class:`~devices.errors.BuildFailed`.
    """
    scratch = directory / "scratch"
    scratch.mkdir()
    progress("unpacking the kernel")
    (image_package,) = packages.glob("linux-image-*.deb")
    unpack(image_package, scratch / "image")
    (boot,) = (scratch / "image" / "boot").glob("vmlinuz-*")
    release = boot.name.removeprefix("vmlinuz-")
    (directory / "release").write_text(release, encoding="utf-8")
    _check_image(boot, release)
    shutil.move(boot, directory / "Image")
    modules = {_module_name(path.name): path for path in (scratch / "image").rglob("*.ko*")}
    missing = [name for name in _SOURCES if name not in modules]
    if missing:
        progress(f"building kernel modules: {', '.join(missing)}")
        modules |= _build_missing(packages, scratch, missing)
    for name in {*_WANTED, *(n for wanted in _WANTED for n in dependencies(wanted, modules))}:
        target = directory / f"{name}.ko"
        target.write_bytes(_module_bytes(modules[name]))
    shutil.rmtree(scratch)


def dependencies(name: str, modules: Mapping[str, Path]) -> list[str]:
    """Modules to load before a module, in order. Code that is built into the kernel is not a module
    and needs no loading."""
    found: list[str] = []

    def visit(module: str) -> None:
        for needed in _depends_field(_module_bytes(modules[module])):
            if needed in modules and needed not in found:
                visit(needed)
                found.append(needed)

    if name not in modules:
        raise BuildFailed(f"the kernel of the emulated board has no module {name}")
    visit(name)
    return found


def _build_missing(packages: Path, scratch: Path, missing: list[str]) -> dict[str, Path]:
    headers = _unpack_headers(packages, scratch / "headers")
    sources = scratch / "modules"
    sources.mkdir()
    (source_package,) = packages.glob("linux-source-*.deb")
    nand_makefile = _unpack_sources(source_package, sources, missing)
    (sources / "Kbuild").write_text(_kbuild(missing, nand_makefile), encoding="utf-8")
    _make(
        "make",
        f"-j{os.cpu_count()}",
        "-C",
        str(headers),
        f"M={sources}",
        "ARCH=arm64",
        f"CROSS_COMPILE={CROSS_PREFIX}",
        f"CC={CROSS_PREFIX}gcc",
        "modules",
    )
    built = {_module_name(path.name): path for path in sources.glob("*.ko")}
    for path in built.values():
        _make(f"{CROSS_PREFIX}strip", "--strip-debug", str(path))
    return built


def _unpack_headers(packages: Path, root: Path) -> Path:
    for pattern in ("linux-headers-*.deb", "linux-kbuild-*.deb"):
        for package in packages.glob(pattern):
            unpack(package, root)
    (headers,) = (
        path for path in (root / "usr" / "src").glob("linux-headers-*") if "common" not in path.name
    )
    makefile = headers / "Makefile"  # one line that includes the common Makefile by absolute path
    text = makefile.read_text(encoding="utf-8")
    makefile.write_text(text.replace("include /usr", f"include {root}/usr"), encoding="utf-8")
    return headers


def _unpack_sources(package: Path, directory: Path, missing: list[str]) -> str:
    """Unpack the few needed files of 80,000. Returns the Makefile that lists the parts of the raw
    flash core."""
    nand_makefile = ""
    wanted = {_SOURCES[name] for name in missing} | {_NAND_HEADER}
    with package_members(package) as members:
        archive = next(member for member in members if member.name.endswith(".tar.xz"))
        with tarfile.open(fileobj=members.extractfile(archive), mode="r|xz") as kernel:
            for member in kernel:
                path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
                if not {str(path), str(path.parent)} & wanted or not member.isfile():
                    continue
                stream = kernel.extractfile(member)
                content = b"" if stream is None else stream.read()
                if path == PurePosixPath(_SOURCES["nand"]) / "Makefile":
                    nand_makefile = content.decode()
                elif path.suffix in {".c", ".h"}:
                    (directory / path.name).write_bytes(content)
    return nand_makefile


def _kbuild(missing: list[str], nand_makefile: str) -> str:
    objects = [Path(_SOURCES[name]).stem for name in missing if name != "nand"]
    if "nand" in missing:
        objects.append("nand")
    lines = re.findall(r"^nand-objs\s*[:+]=.*$", nand_makefile, re.MULTILINE)
    return "\n".join([f"obj-m += {name}.o" for name in objects] + lines) + "\n"


def _make(*command: str) -> None:
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise BuildFailed(
            f"building kernel modules took more than {_BUILD_TIMEOUT_S:g} s"
        ) from None
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if "rror" in line]
        output = "\n".join((errors or result.stderr.splitlines())[:5])
        raise BuildFailed(
            f"{shlex.join(command[:1])} failed: {output}", operation="building kernel modules"
        )


def _check_image(image: Path, release: str) -> None:
    with image.open("rb") as stream:
        head = stream.read(_IMAGE_MAGIC_OFFSET + len(_IMAGE_MAGIC))
    if head[_IMAGE_MAGIC_OFFSET:] != _IMAGE_MAGIC:
        raise BuildFailed(f"the kernel {release} is not an uncompressed arm64 image")


def _module_name(file_name: str) -> str:
    """Module name in modprobe's form: dash and underscore are the same."""
    return file_name.partition(".ko")[0].replace("-", "_")


def _module_bytes(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def _depends_field(module: bytes) -> list[str]:
    """Dependencies of a module, from its section of NUL-terminated ``key=value`` texts."""
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    names = found[1].decode().split(",") if found else []
    return [name.replace("-", "_") for name in names if name]

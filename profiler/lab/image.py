"""Image of the emulated Linux board.

It boots Debian's arm64 kernel with an in-memory root file system of busybox and dropbear, and
contains the SSH keys of this computer and the board. Everything is built once and kept in
:class:`~profiler.lab.cache.BuildCache`. Packages stay at the versions that were fetched, so that
later starts need no network.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

from devices.errors import BuildFailed
from devices.firmware import Emulator
from profiler.lab import cpio
from profiler.lab.cache import BuildCache, digest
from profiler.lab.modules import CROSS_PREFIX, Kernel, build_kernel
from profiler.lab.packages import (
    ARCHITECTURE,
    kernel_packages,
    open_apt,
    package_file,
    package_members,
    sources_text,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Progress: TypeAlias = Callable[[str], None]

GUEST = Path(__file__).parent / "guest"

SENSOR_LOG = "/run/joulewright-sensor.log"
"""Log on the board of the values of its power sensor. See ``guest/sensor.c``."""

SCRATCH_PARTITION = "scratch"
"""Name in ``/proc/mtd`` of the part of the emulated raw flash that may be overwritten."""

_USER_LAND = ("busybox-static", "dropbear-bin")
_USR_MERGED = ("bin", "sbin", "lib")
_UNUSED = ("usr/share/", "usr/lib/systemd/", "etc/", "usr/lib/aarch64-linux-gnu/gconv/")

_COMPILE_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-static")

_FILES = {
    "etc/passwd": cpio.file("root:x:0:0:root:/root:/bin/sh\n"),
    "etc/group": cpio.file("root:x:0:\n"),
    "etc/shadow": cpio.file("root:*:19000:0:99999:7:::\n", 0o600),  # no password is valid
    "etc/shells": cpio.file("/bin/sh\n"),
    "etc/hosts": cpio.file("127.0.0.1 localhost emulated-board\n"),
    "dev/console": cpio.character_device(5, 1, 0o600),
    "dev/null": cpio.character_device(1, 3, 0o666),
    "init": cpio.link("bin/busybox"),
    "root": cpio.directory(0o700),
    "root/.ssh": cpio.directory(0o700),
    **{directory: cpio.directory() for directory in ("mnt/sd", "proc", "run", "sys", "var/log")},
    "tmp": cpio.directory(0o1777),
    **{name: cpio.link(f"usr/{name}") for name in _USR_MERGED},
}


@dataclass(frozen=True)
class LinuxImage:
    """Files of an image. ``kernel`` is an uncompressed arm64 image. ``private_key`` logs root in;
    ``host_key_line`` follows the board's name in known_hosts."""

    kernel: Path
    initramfs: Path
    private_key: Path
    host_key_line: str


def build_image(progress: Progress) -> LinuxImage:
    """Build the image from Debian's packages, or take it from the cache.

    Call :func:`~profiler.building.programs.require_programs` first. Raises
    :class:`~devices.errors.BuildFailed`.
    """
    packages_key = digest(sources_text(), *_USER_LAND, _source("packages.py"))
    kernel_key = digest(packages_key, _source("modules.py"))
    guest = [path.read_bytes() for path in sorted(GUEST.iterdir())]
    root_key = digest(kernel_key, _source("image.py"), _source("cpio.py"), *guest)

    def packages() -> Path:
        return cache.directory(
            "packages", packages_key, lambda directory: _fetch(directory, progress)
        )

    def kernel() -> Path:
        return cache.directory(
            "kernel", kernel_key, lambda directory: build_kernel(packages(), directory, progress)
        )

    def root() -> Path:
        return cache.directory(
            "root",
            root_key,
            lambda directory: _build_root(packages(), Kernel.load(kernel()), directory, progress),
        )

    with BuildCache(progress) as cache:
        image, boot = root(), kernel()
    return LinuxImage(
        kernel=Kernel.load(boot).image,
        initramfs=image / "initramfs",
        private_key=image / "login_key",
        host_key_line=(image / "host_key.pub").read_text(encoding="ascii"),
    )


def kernel_words(emulator: Emulator) -> list[str]:
    """The kernel's command line. ``guest/setup.sh`` sets up in the guest what the words ``board.*``
    name."""
    # Without norandmaps, random program addresses change the path of some copies, and times differ
    # by a thousandth from run to run.
    words = ["console=ttyAMA0", "quiet", "mitigations=off", "norandmaps"]
    if emulator.card is not None:
        words.append("board.card=ext4")
    if (nand := emulator.nand) is not None:
        delays = (nand.read_delay_us, nand.program_delay_us, nand.erase_delay_ms)
        words.append(f"board.nand={','.join(map(str, delays))}")
    if (sensor := emulator.sensor) is not None:
        words.append(f"board.sensor={sensor.idle_w},{sensor.busy_w}")
    return words


def _fetch(directory: Path, progress: Progress) -> None:
    progress("looking up Debian's arm64 packages")
    with tempfile.TemporaryDirectory(prefix="joulewright-apt-") as state:
        apt = open_apt(Path(state))
        user_land = apt.with_dependencies([f"{name}:{ARCHITECTURE}" for name in _USER_LAND])
        progress("downloading Debian's arm64 packages, about 220 MB")
        apt.download([*kernel_packages(apt), *user_land], directory)
    (directory / "user-land").write_text("\n".join(user_land), encoding="utf-8")


def _build_root(packages: Path, kernel: Kernel, directory: Path, progress: Progress) -> None:
    progress("building the root file system")
    host_key, login_key = _new_key(), _new_key()
    entries = dict(_FILES)
    for name in (packages / "user-land").read_text(encoding="utf-8").split():
        entries.update(_unpacked(package_file(packages, name)))
    modules = f"usr/lib/modules/{kernel.release}"
    entries |= {
        f"{modules}/{path.name}": cpio.file(path.read_bytes()) for path in kernel.modules.values()
    }
    entries |= {
        f"{modules}/modules.dep": cpio.file(kernel.modules_dep()),
        "etc/inittab": cpio.file((GUEST / "inittab").read_bytes()),
        "etc/dropbear/host_key": cpio.file(_dropbear_key(host_key), 0o600),
        "root/.ssh/authorized_keys": cpio.file(_public_line(login_key), 0o600),
        "usr/sbin/board-setup": cpio.file((GUEST / "setup.sh").read_bytes(), 0o755),
        "usr/sbin/board-sensor": cpio.file(_compile(GUEST / "sensor.c", directory), 0o755),
    }
    (directory / "initramfs").write_bytes(cpio.archive(entries))
    (directory / "host_key.pub").write_text(_public_line(host_key), encoding="ascii")
    _write_private(directory / "login_key", login_key)


def _unpacked(package: Path) -> Iterator[tuple[str, cpio.Entry]]:
    """Files of a package that a board needs. ``/bin``, ``/sbin`` and ``/lib`` are merged into
    ``/usr``, as on any Debian."""
    with package_members(package) as members:
        for member in members:
            path = str(PurePosixPath(member.name))
            if path.partition("/")[0] in _USR_MERGED:
                path = f"usr/{path}"
            if path.startswith(_UNUSED):
                continue
            if member.issym():
                yield path, cpio.link(member.linkname)
            elif member.isfile() and (stream := members.extractfile(member)) is not None:
                yield path, cpio.file(stream.read(), member.mode)


def _compile(source: Path, directory: Path) -> bytes:
    """Compile a program. It is linked statically, since the board's C library may be older than the
    compiler's."""
    program = directory / source.stem
    command = [f"{CROSS_PREFIX}gcc", *_COMPILE_FLAGS, str(source), "-o", str(program), "-lm"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise BuildFailed(f"the emulated board's {source.name} cannot be built: {result.stderr}")
    data = program.read_bytes()
    program.unlink()
    return data


def _new_key() -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate()


def _public_line(key: Ed25519PrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _write_private(path: Path, key: Ed25519PrivateKey) -> None:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    text = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(text)


def _dropbear_key(key: Ed25519PrivateKey) -> bytes:
    """A key in dropbear's format: two strings with their lengths (RFC 4251), the type, and the
    private key followed by the public key."""
    private, public = key.private_bytes_raw(), key.public_key().public_bytes_raw()
    return b"".join(
        len(text).to_bytes(4, "big") + text for text in (b"ssh-ed25519", private + public)
    )


def _source(name: str) -> bytes:
    """Source of a module of this package, so that a change of the build causes a new build."""
    return (Path(__file__).parent / name).read_bytes()

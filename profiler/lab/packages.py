"""Debian's packages for another architecture, fetched with this computer's apt.

apt's sources, proxies and keys are those of this computer; only its state is private, so that
nothing is installed here and no other architecture has to be enabled. apt checks the signatures.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from devices.errors import BuildFailed

ARCHITECTURE = "arm64"

_KERNEL = "linux-image-arm64"

_NETWORK_TIMEOUT_S = 1800.0

# Read after the computer's own configuration. The cleared lists hold commands that apt would run
# after an update, which are meant for the computer's own state.
_CONFIGURATION = """\
#clear APT::Architectures;
APT::Architectures {{ "{own}"; "{foreign}"; }};
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::State "{state}";
Dir::State::lists "{state}/lists";
Dir::State::status "{state}/status";
Dir::Cache "{state}/cache";
Acquire::Languages "none";
APT::Update::Error-Mode "any";
APT::Sandbox::User "root";
"""


@dataclass(frozen=True)
class Apt:
    """apt with a state of its own in ``state``, which :func:`open_apt` creates."""

    state: Path

    def records(self, package: str) -> list[dict[str, str]]:
        """Records of a package's versions, newest first, with fields such as ``Depends``.

        ``NAME=VERSION`` has the record of one version.
        """
        text = self._run("apt-cache", "show", package)
        return [
            {match[1]: match[2] for match in re.finditer(r"^([\w-]+): (.*)$", record, re.MULTILINE)}
            for record in text.strip().split("\n\n")
        ]

    def has(self, package: str) -> bool:
        """Whether apt's sources have ``package``, which is ``NAME=VERSION``."""
        name, _, version = package.partition("=")
        rows = self._run("apt-cache", "madison", name).splitlines()
        return version in {row.split("|")[1].strip() for row in rows}

    def with_dependencies(self, packages: Sequence[str]) -> list[str]:
        """Packages and all packages that they depend on, by name and architecture."""
        unwanted = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
        options = [f"--no-{relation}" for relation in unwanted]
        text = self._run("apt-cache", "depends", "--recurse", *options, *packages)
        return sorted({line for line in text.splitlines() if re.match(r"[a-z0-9]", line)})

    def download(self, packages: Sequence[str], directory: Path) -> None:
        """Download packages: ``NAME``, ``NAME:ARCHITECTURE`` or either with ``=VERSION``."""
        self._run("apt-get", "-qq", "download", *packages, directory=directory)

    def update(self) -> None:
        self._run("apt-get", "-qq", "update")

    def _run(self, program: str, *arguments: str, directory: Path | None = None) -> str:
        return _run([program, "-c", str(self.state / "apt.conf"), *arguments], directory=directory)


def open_apt(state: Path) -> Apt:
    """apt with private state in an empty directory, and with fresh package lists.

    Raises :class:`~devices.errors.BuildFailed` on a computer without apt and dpkg, or whose sources
    cannot be read.
    """
    own = _run(["dpkg", "--print-architecture"]).strip()
    for directory in ("lists/partial", "cache/archives/partial"):
        (state / directory).mkdir(parents=True)
    (state / "status").touch()
    configuration = _CONFIGURATION.format(own=own, foreign=ARCHITECTURE, state=state)
    (state / "apt.conf").write_text(configuration, encoding="utf-8")
    apt = Apt(state)
    apt.update()
    return apt


def kernel_packages(apt: Apt) -> list[str]:
    """The newest kernel and the packages for building its modules, all of one version.

    Debian publishes a version when it is built, for one architecture hours before another. Of such
    a version, some packages are missing.
    """
    missing: list[str] = []
    for meta in apt.records(f"{_KERNEL}:{ARCHITECTURE}"):
        packages = _of_version(apt, meta)
        absent = [package for package in packages if not apt.has(package)]
        if not absent:
            return packages
        missing += absent
    raise BuildFailed(
        f"the sources of this computer's apt lack {', '.join(missing)}",
        operation="fetching Debian packages for the emulated board",
        remedy="try again later, or add the archive of updates to the sources",
    )


def _of_version(apt: Apt, meta: Mapping[str, str]) -> list[str]:
    """The packages of one version of the kernel.

    Without its headers, which name the other packages for building modules, these are left out.
    """
    version = meta["Version"]
    image = _depends(meta, r"linux-image-[^ ,]+")
    headers = f"{image.replace('image', 'headers', 1)}:{ARCHITECTURE}={version}"
    major, minor = version.split(".")[:2]
    packages = [f"{image}:{ARCHITECTURE}={version}", headers]
    if apt.has(headers):
        (own,) = apt.records(headers)
        common = _depends(own, r"linux-headers-[^ ,]+-common[^ ,]*")
        tools = _depends(own, r"linux-kbuild-[^ ,]+")
        packages += [f"{common}={version}", f"{tools}={version}"]
    return [*packages, f"linux-source-{major}.{minor}={version}"]


def sources_text() -> str:
    """Package sources of this computer's apt, in both of its formats."""
    described = _run(
        [
            "apt-config",
            "shell",
            "LIST",
            "Dir::Etc::sourcelist/f",
            "PARTS",
            "Dir::Etc::sourceparts/d",
        ]
    )
    paths = dict(re.findall(r"^(\w+)='(.*)'$", described, re.MULTILINE))
    files = [Path(paths["LIST"])]
    files += sorted(
        path for path in Path(paths["PARTS"]).glob("*") if path.suffix in {".list", ".sources"}
    )
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file())


def package_file(directory: Path, package: str) -> Path:
    """Downloaded file of a package, named with or without its architecture."""
    (path,) = directory.glob(f"{package.partition(':')[0]}_*.deb")
    return path


def unpack(package: Path, directory: Path) -> None:
    _run(["dpkg-deb", "--extract", str(package), str(directory)])


@contextmanager
def package_members(package: Path) -> Iterator[tarfile.TarFile]:
    """Files of a package, to be read once and in order."""
    _require("dpkg-deb")
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE
    ) as process:
        stream: IO[bytes] | None = process.stdout
        try:
            with tarfile.open(fileobj=stream, mode="r|") as members:
                yield members
        except tarfile.TarError as error:
            raise BuildFailed(f"{package}: cannot be unpacked: {error}") from error
        finally:
            process.terminate()  # it may not have been read to the end


def _depends(fields: Mapping[str, str], pattern: str) -> str:
    """The one package that matches ``pattern`` among the dependencies of another."""
    found = re.search(rf"(?:^|, )({pattern})(?= |,|$)", fields.get("Depends", ""))
    if found is None:
        raise BuildFailed(
            f"Debian's package {fields.get('Package')} depends on no {pattern}; the kernel"
            " packages have an unexpected structure"
        )
    return found[1]


def _run(command: Sequence[str], *, directory: Path | None = None) -> str:
    _require(command[0])
    try:
        result = subprocess.run(
            command,
            cwd=directory,
            env=os.environ | {"LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_NETWORK_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise BuildFailed(
            f"{command[0]} did not finish within {_NETWORK_TIMEOUT_S:g} s",
            remedy="check the network connection",
        ) from None
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if line.startswith("E:")]
        output = "; ".join(lines or result.stderr.strip().splitlines()[-1:])
        raise BuildFailed(
            f"{command[0]} failed: {output}",
            operation="fetching Debian packages for the emulated board",
            remedy="the sources are those of this computer's apt, which must be Debian's and"
            " reachable",
        )
    return result.stdout


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise BuildFailed(
            f"the emulated Linux board needs Debian packages, but this computer has no {program}",
            remedy="use a Debian system (or container), or: sudo apt install apt dpkg",
        )

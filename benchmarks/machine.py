"""Facts about the machine and the software that a benchmark ran on."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.support.paths import ROOT

_SOLVERS = {"mip": "python-mip", "highspy": "HiGHS", "ortools": "OR-Tools"}
_CODE = (".", ":!docs")
_SOURCES = ("*.py", "*.c", "*.h", "*.S")
_VERSION = re.compile(r"\d+(?:\.\d+)+")


def machine() -> str:
    """Processor, cores, operating system and kernel."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.machine()}, {_system()}"


def python_version() -> str:
    return f"Python {platform.python_version()}"


def release() -> str:
    """Version and commit of this project.

    Changed files outside docs/ are mentioned with a hash, so that other changes are another
    release.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = f"{project['name']} {project['version']}"
    git = ["git", "-C", str(ROOT)]
    try:
        commit = _output([*git, "rev-parse", "--short=10", "HEAD"]).strip()
        changes = _output([*git, "status", "--porcelain", "--", *_CODE]).strip()
        if not changes:
            return f"{name}, commit {commit}"
        return f"{name}, commit {commit} with uncommitted changes {_changes(git)}"
    except (OSError, subprocess.CalledProcessError):
        return name


def _changes(git: Sequence[str]) -> str:
    """Hash of the changes of tracked files, and of source files that are not tracked yet."""
    found = hashlib.sha256(_output([*git, "diff", "HEAD", "--binary", "--", *_CODE]).encode())
    new = _output([*git, "ls-files", "--others", "--exclude-standard", "-z", "--", *_SOURCES])
    for path in filter(None, new.split("\0")):
        found.update(path.encode() + b"\0" + (ROOT / path).read_bytes())
    return found.hexdigest()[:8]


def load_average() -> float:
    """Over the last minute."""
    return os.getloadavg()[0]


def solver_versions() -> list[str]:
    return [package_version(package, name) for package, name in _SOLVERS.items()]


def package_version(package: str, name: str = "") -> str:
    """Version of an installed Python package, after its ``name``."""
    try:
        return f"{name or package} {version(package)}"
    except PackageNotFoundError:
        return f"{name or package} (version unknown)"


def program_version(program: str, name: str = "") -> str:
    """First number that ``program --version`` prints, after its ``name``."""
    try:
        found = _VERSION.search(_output([program, "--version"]).partition("\n")[0])
    except (OSError, subprocess.CalledProcessError):
        found = None
    return f"{name or program} {found[0] if found else '(version unknown)'}"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _system() -> str:
    """Distribution and kernel. The suffix that a distributor adds to the kernel's number is left
    out."""
    number = _VERSION.match(platform.release())
    kernel = f"{platform.system()} {number[0] if number else platform.release()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, check=True, capture_output=True, encoding="utf-8", errors="replace"
    )
    return done.stdout

"""Small sysfs files of a board, read in one command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from profiler.transports.base import Transport

_READ_TIMEOUT_S = 30.0

# Prints "path<TAB>first line" of every file below a directory that matches one of the patterns.
_READ_FILES = """\
root=$1
shift
for pattern in "$@"; do
    for file in "$root"/*/$pattern; do
        [ -f "$file" ] || continue
        if [ -r "$file" ]; then
            printf '%s\\t' "$file"
            head -n 1 "$file" 2>/dev/null || echo
        else
            printf '%s\\t\\n' "$file"
        fi
    done
done
"""


@dataclass(frozen=True)
class SysfsDevice:
    """A directory and the first line of each of its files ("" for an unreadable file)."""

    directory: str
    files: dict[str, str]

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def number(self, name: str) -> int | None:
        text = self.files.get(name, "")
        return int(text) if text.lstrip("-").isdigit() else None


def read_devices(transport: Transport, root: str, patterns: tuple[str, ...]) -> list[SysfsDevice]:
    """Directories below ``root`` with their matching files, by directory name."""
    listing = transport.run(
        ["sh", "-c", _READ_FILES, "sh", root, *patterns], timeout_s=_READ_TIMEOUT_S
    ).stdout
    found: dict[str, dict[str, str]] = {}
    for line in listing.splitlines():
        path, _, text = line.partition("\t")
        if text or "\t" in line:
            file = PurePosixPath(path)
            found.setdefault(str(file.parent), {})[file.name] = text.strip()
    return [SysfsDevice(directory, files) for directory, files in sorted(found.items())]

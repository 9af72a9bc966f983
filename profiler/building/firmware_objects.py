"""Cache of the objects that this computer has compiled for firmware.

Every plan makes another firmware, of which few sources change. An object is used again only for the
same source, headers, flags and compiler.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from devices.user_cache import user_cache

DIRECTORY = "firmware-objects"
"""Not ``objects``, where :mod:`~profiler.building.objects` removes all but its newest builds."""

_MOST_BYTES = 64 << 20
_KEPT_BYTES = _MOST_BYTES * 3 // 4
_DIGEST_BYTES = hashlib.sha256().digest_size


class FirmwareObjects:
    """Directory :data:`DIRECTORY` of the user's cache, of at most 64 MiB.

    An entry begins with a checksum, so that what a power cut left of one is never used. Without
    room for an entry, there is none. Removing the directory is always safe.

    Args:
        compiler: Command and version of the compiler.
        headers: Headers that sources may include, by path.
    """

    def __init__(self, compiler: Iterable[str], headers: Mapping[str, bytes]) -> None:
        self._root = user_cache() / DIRECTORY
        self._common = _digest(*compiler, *_parts(headers))

    def key(self, name: str, source: bytes, words: Iterable[str]) -> str:
        """Name of the object that the compiler makes from a source with the options ``words``."""
        return _digest(self._common, name, source, *words)

    def take(self, key: str, made: Path) -> bool:
        """Write an object to ``made``. Returns whether it is known and could be written."""
        entry = self._root / key
        try:
            content = entry.read_bytes()
            os.utime(entry)
            checksum, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if hashlib.sha256(data).digest() != checksum:
                return False
            made.write_bytes(data)
        except OSError:
            return False
        return True

    def keep(self, key: str, made: Path) -> None:
        """Keep the object in ``made``."""
        data = made.read_bytes()
        with suppress(OSError):  # such as a full disk: it is compiled again next time
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._root, prefix=".", delete=False) as part:
                try:
                    part.write(hashlib.sha256(data).digest() + data)
                    part.close()
                    os.replace(part.name, self._root / key)
                except BaseException:
                    Path(part.name).unlink()
                    raise

    def shrink(self) -> None:
        """Remove the entries that were not used for longest, if all together are too large."""
        with suppress(OSError):  # another process removes some, too
            found = [(entry, entry.stat()) for entry in self._root.iterdir()]
            total = sum(stat.st_size for _, stat in found)
            if total <= _MOST_BYTES:
                return
            for entry, stat in sorted(found, key=lambda pair: pair[1].st_mtime):
                entry.unlink(missing_ok=True)
                total -= stat.st_size
                if total <= _KEPT_BYTES:
                    return


def _parts(files: Mapping[str, bytes]) -> Iterable[str | bytes]:
    for name, content in sorted(files.items()):
        yield name
        yield content


def _digest(*parts: str | bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()

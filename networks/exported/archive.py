"""The zip archive that ``torch.export.save`` writes (format ``pt2``, archive version 0).

It holds the graph as JSON (``NAME/models/MODEL.json``), and parameters and buffers as plain numbers
(``NAME/data/weights/weight_N``) with a table of their shapes, constants likewise. Its pickled
members are never read. Every member's size is checked before it is decompressed, so that a file
takes no more memory than its tensors.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from devices.documents.document import DocumentError, parse_json
from devices.documents.limits import MOST_BYTES
from devices.documents.regular import require_regular
from networks.exported.errors import ExportError

Folder: TypeAlias = Literal["weights", "constants"]

_MOST_MEMBERS = 100_000
_GRAPHS = re.compile(r"[^/]+/models/[^/]+\.json")
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


@dataclass(frozen=True)
class Archive:
    """An archive on disk. ``root`` is the folder in it that holds everything.

    The file stays open as long as the archive is in use.
    """

    path: Path
    sha256: str
    root: str
    sizes: Mapping[str, int]
    _members: zipfile.ZipFile

    @classmethod
    def open(cls, path: Path) -> Archive:
        """Read an archive's table of contents.

        Raises:
            ExportError: The file cannot be read, or is no archive of an exported program.
        """
        try:
            require_regular(path)
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            archive = zipfile.ZipFile(path)
            members = archive.infolist()
        except OSError as error:
            raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from None
        except _BROKEN as error:
            raise ExportError(
                f"{path}: not a file that torch.export.save wrote, or cut off: {error}"
            ) from None
        if len(members) > _MOST_MEMBERS:
            raise ExportError(
                f"{path}: has {len(members)} members; an exported program has at most"
                f" {_MOST_MEMBERS}"
            )
        sizes = {member.filename: member.file_size for member in members}
        graphs = [name for name in sizes if _GRAPHS.fullmatch(name)]
        if len(graphs) != 1:
            raise ExportError(
                f"{path}: has {len(graphs)} graphs where an exported program has one; write the"
                " file with torch.export.save"
            )
        found = cls(path, sha256, graphs[0].partition("/")[0], sizes, archive)
        found._check_byte_order()
        return found

    def document(self, folder: str, ending: str) -> object:
        """Parse the one JSON document in a folder whose name ends so.

        Raises:
            ExportError: There is not exactly one, or it is not JSON.
        """
        names = [
            name
            for name in self.sizes
            if PurePosixPath(name).parent == PurePosixPath(self.root, folder)
            and name.endswith(ending)
        ]
        if len(names) != 1:
            raise ExportError(f"{self.path}: has {len(names)} files {folder}/*{ending}; needs one")
        content = self._whole(names[0], MOST_BYTES)
        try:
            return parse_json(content.decode(), f"{self.path}: {names[0]}")
        except UnicodeDecodeError as error:
            raise ExportError(f"{self.path}: {names[0]} is not UTF-8: {error.reason}") from None
        except DocumentError as error:
            raise ExportError(str(error)) from None

    def numbers(self, folder: Folder, name: str, size_bytes: int) -> bytes:
        """Read the first bytes of a member of ``data/weights`` or ``data/constants``.

        Raises:
            ExportError: It is missing, shorter, or damaged.
        """
        member = f"{self.root}/data/{folder}/{name}"
        found = self.sizes.get(member)
        if found is None or found < size_bytes:
            has = "is missing" if found is None else f"has {found} bytes"
            raise ExportError(f"{self.path}: {member} {has}; its tensor has {size_bytes} bytes")
        return self._content(member, size_bytes)

    def _check_byte_order(self) -> None:
        name = f"{self.root}/byteorder"
        order = self._whole(name, 16) if name in self.sizes else b"missing"
        if order.strip() != b"little":
            raise ExportError(
                f"{self.path}: its byte order is {order.decode(errors='replace')!r}; 'little' is"
                " needed"
            )

    def _whole(self, name: str, most_bytes: int) -> bytes:
        size_bytes = self.sizes[name]
        if size_bytes > most_bytes:
            raise ExportError(
                f"{self.path}: {name} has {size_bytes} bytes; at most {most_bytes} are allowed"
            )
        return self._content(name, size_bytes)

    def _content(self, name: str, size_bytes: int) -> bytes:
        """Read the first bytes of a member. Its stated size may be wrong: never read more."""
        try:
            with self._members.open(name) as member:
                content = member.read(size_bytes)
                member.read(1)  # the checksum is compared at the end of the member
        except OSError as error:
            raise ExportError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        except (*_BROKEN, KeyError) as error:
            raise ExportError(f"{self.path}: {name} is damaged: {error}") from None
        if len(content) != size_bytes:
            raise ExportError(f"{self.path}: {name} does not have the {size_bytes} bytes it states")
        return content

"""``unpack_campaign``: the directory of a campaign from an archive that anybody may have made.

Nothing is written before the archive's whole list of contents is found harmless, and nothing beyond
the sizes and hashes that it states. The campaign appears under its name when it is complete.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from campaigns.keeping.directory import CampaignDirectory
from campaigns.sharing.manifest import (
    MANIFEST,
    MOST_BYTES,
    MOST_FILES,
    Manifest,
    PackedFile,
    is_allowed,
)
from devices.documents.document import DocumentError, parse_json, validate
from devices.documents.explain import shown
from devices.documents.limits import MOST_BYTES as MOST_DOCUMENT_BYTES
from devices.documents.regular import require_regular
from devices.errors import InputError

_CHUNK = 1 << 20
_ENCRYPTED = 0x1
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


class ArchiveError(InputError):
    """An archive is damaged, or holds what no archive of a campaign may hold."""


def unpack_campaign(archive: Path, directory_of: Callable[[str], Path]) -> tuple[Manifest, Path]:
    """Unpack an archive that :func:`~campaigns.sharing.packing.pack_campaign` has written.

    Args:
        archive: The archive, from whatever source.
        directory_of: The directory to create for a campaign of this name.

    Returns:
        The archive's list of contents, and the directory.

    Raises:
        ArchiveError: The archive is not one of a campaign, is damaged, or is hostile.
        InputError: The directory exists.
        DocumentError: The archive cannot be read, or its documents are not those of a campaign.
        OSError: A file cannot be written.
    """
    try:
        require_regular(archive)
        with zipfile.ZipFile(archive) as packed:
            entries = _harmless(packed, archive)
            manifest = _manifest(packed, entries, archive)
            directory = directory_of(manifest.name)
            if directory.exists():
                raise InputError(
                    f"{directory}: exists, and unpacking replaces nothing",
                    remedy="name another directory with --out",
                )
            directory.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=directory.parent))
            try:
                for name, info in entries.items():
                    _write(packed, info, manifest.files.get(name), partial / name, archive)
                if CampaignDirectory(partial).design().name != manifest.name:
                    raise ArchiveError(
                        f"{archive}: {MANIFEST} names another campaign than its cells"
                    )
                partial.chmod(0o755)
                partial.rename(directory)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ArchiveError(f"{archive}: not a zip archive, or damaged: {error}") from None
    except OSError as error:
        if error.filename == str(archive):
            raise DocumentError(f"{archive}: cannot be read: {error.strerror}") from None
        raise
    return manifest, directory


def _harmless(packed: zipfile.ZipFile, archive: Path) -> Mapping[str, zipfile.ZipInfo]:
    """The entries by name. Raises :class:`ArchiveError` for what may not be in an archive."""
    infos = packed.infolist()
    if len(infos) > MOST_FILES:
        raise ArchiveError(f"{archive}: holds {len(infos)} files, allowed are {MOST_FILES}")
    total = sum(info.file_size for info in infos)
    if total > MOST_BYTES:
        raise ArchiveError(
            f"{archive}: holds {total} bytes when unpacked, allowed are {MOST_BYTES >> 30} GiB"
        )
    entries: dict[str, zipfile.ZipInfo] = {}
    seen: set[str] = set()
    for info in infos:
        name = info.orig_filename
        if not is_allowed(name):
            raise ArchiveError(
                f"{archive}: the name {shown(name)} is not allowed: letters, digits, '.', '_' and"
                " '-' in at most four parts, none of which begins with '.'"
            )
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            what = _KINDS.get(kind, "special file")
            raise ArchiveError(f"{archive}: {name} is a {what}, allowed are plain files")
        if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
            raise ArchiveError(
                f"{archive}: {name} is encrypted or compressed in another way than deflate"
            )
        if name.lower() in seen:
            raise ArchiveError(f"{archive}: holds {name} twice")
        seen.add(name.lower())
        entries[name] = info
    return entries


_KINDS = {
    stat.S_IFLNK: "link",
    stat.S_IFDIR: "directory",
    stat.S_IFCHR: "device file",
    stat.S_IFBLK: "device file",
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
}


def _manifest(
    packed: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], archive: Path
) -> Manifest:
    source = f"{archive}: {MANIFEST}"
    if MANIFEST not in entries:
        raise ArchiveError(f"{archive}: not the archive of a campaign: {MANIFEST} is missing")
    if entries[MANIFEST].file_size > MOST_DOCUMENT_BYTES:
        raise ArchiveError(f"{source}: larger than {MOST_DOCUMENT_BYTES >> 20} MiB")
    try:
        text = packed.read(MANIFEST).decode()
    except UnicodeDecodeError:
        raise ArchiveError(f"{source}: not UTF-8 text") from None
    manifest = validate(parse_json(text, source), Manifest, source)
    for name in manifest.files.keys() ^ (entries.keys() - {MANIFEST}):
        where = "not in the archive" if name in manifest.files else f"not in {MANIFEST}"
        raise ArchiveError(f"{archive}: the file {shown(name)} is {where}")
    return manifest


def _write(
    packed: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    stated: PackedFile | None,
    path: Path,
    archive: Path,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, written = hashlib.sha256(), 0
    with packed.open(info) as content, path.open("xb") as file:
        while chunk := content.read(_CHUNK):
            written += len(chunk)
            if written > info.file_size:
                raise ArchiveError(f"{archive}: {info.filename} is longer than the archive states")
            digest.update(chunk)
            file.write(chunk)
    if stated is not None and (written, digest.hexdigest()) != (stated.size_bytes, stated.sha256):
        raise ArchiveError(f"{archive}: {info.filename} is not the file that {MANIFEST} states")

"""``pack_campaign``: a campaign's directory as one archive."""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

from campaigns.keeping.results import CampaignResults
from campaigns.sharing.manifest import (
    MANIFEST,
    MOST_BYTES,
    Environment,
    Manifest,
    PackedFile,
    is_allowed,
)
from campaigns.sharing.repeating import repetition_of
from devices.documents.document import dump_json
from devices.documents.regular import replaced_by_writing
from devices.errors import InputError

_OF_THIS_COMPUTER = {"progress.json"}


def pack_campaign(results: CampaignResults, archive: Path) -> Manifest:
    """Write a campaign's files, and what repeats it, to a zip archive.

    The archive states the environment, and a hash of every file. It holds the descriptions of the
    boards, with names of hosts and users.

    Args:
        results: The campaign, which may be unfinished.
        archive: File to write; an existing one is replaced once the new one is complete. Links
            are followed.

    Returns:
        The list of contents.

    Raises:
        InputError: The campaign is larger than any archive may be.
        OSError: A file cannot be read or written.
    """
    repetition = repetition_of(results)
    archive = replaced_by_writing(archive)
    partial = archive.with_name(f".{archive.name}.{os.getpid()}")
    files: dict[str, PackedFile] = {}
    archive.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as out:
            for name in sorted(_names(results.directory.path)):
                content = (results.directory.path / name).read_bytes()
                files[name] = _added(out, name, content)
            for name, content in repetition.files.items():
                files[name] = _added(out, name, content)
            if sum(file.size_bytes for file in files.values()) > MOST_BYTES:
                raise InputError(
                    f"{results.directory.path}: its files have more than"
                    f" {MOST_BYTES >> 30} GiB, which no archive of a campaign may hold",
                    remedy="leave cells out with exclude, in a campaign of another name",
                )
            manifest = Manifest(
                name=results.name,
                environment=Environment.here(),
                kernels_sha256=results.design.kernels_sha256,
                files=files,
                left_out=repetition.left_out,
            )
            out.writestr(MANIFEST, dump_json(manifest))
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(archive)
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def _names(directory: Path) -> Iterator[str]:
    """Names of the campaign's complete files, without links, pipes and devices."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder) / name
            relative = path.relative_to(directory).as_posix()
            is_ours = is_allowed(relative) and relative not in _OF_THIS_COMPUTER | {MANIFEST}
            if is_ours and not relative.startswith("repeat/") and _is_regular(path):
                yield relative


def _is_regular(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def _added(out: zipfile.ZipFile, name: str, content: bytes) -> PackedFile:
    out.writestr(name, content)
    return PackedFile(size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())

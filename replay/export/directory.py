"""Directory of an exported project; files changed by the user are never overwritten."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from devices.documents.document import StrictModel, read_json, write_atomically
from devices.errors import InputError

_MANIFEST = "export.json"


class Manifest(StrictModel):
    """SHA-256 of each file of an export, by its path in the directory (``export/1``)."""

    schema_: Annotated[Literal["export/1"], Field(alias="schema")] = "export/1"
    files: Mapping[str, str]


def write_project(files: Mapping[str, bytes], directory: Path) -> None:
    """Write an exported project.

    Files of the user's own in the directory stay. A directory that does not exist is written as a
    whole or not at all.

    Args:
        files: contents by path in the project.
        directory: new, empty, or an earlier export whose files are unchanged.

    Raises:
        InputError: the directory has other contents, or a file of the export was changed.
        OSError: files cannot be written.
    """
    hashes = {path: _hash(content) for path, content in files.items()}
    document = {"schema": "export/1", "files": hashes}
    manifest = (json.dumps(document, indent=1) + "\n").encode()
    if not directory.exists():
        _write_anew({**files, _MANIFEST: manifest}, directory)
        return
    if directory.is_dir() and not any(directory.iterdir()):
        # It may be somebody's working directory, and stays. After an interruption, another export
        # goes on.
        write_atomically(directory / _MANIFEST, manifest)
    earlier = _earlier_export(directory)
    _require_unchanged(directory, earlier, hashes)
    for path, content in files.items():
        write_atomically(directory / path, content)
    for path in earlier.keys() - files.keys():
        (directory / path).unlink(missing_ok=True)
    write_atomically(directory / _MANIFEST, manifest)


def _write_anew(files: Mapping[str, bytes], directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            scratch.chmod(0o755)
            for path, content in files.items():
                write_atomically(scratch / path, content)
            scratch.rename(directory)
        except BaseException:
            shutil.rmtree(scratch)
            raise
    except OSError as error:
        # The name of the temporary directory means nothing to the user.
        raise OSError(error.errno, error.strerror, str(directory)) from error


def _earlier_export(directory: Path) -> Mapping[str, str]:
    if not directory.is_dir() or not (directory / _MANIFEST).is_file():
        raise InputError(
            f"{directory}: exists and is not an earlier export",
            remedy="name another directory with --out",
        )
    return read_json(directory / _MANIFEST, Manifest).files


def _require_unchanged(
    directory: Path, earlier: Mapping[str, str], planned: Mapping[str, str]
) -> None:
    """Raise :class:`InputError` for changed files, except those of an interrupted export."""
    for path in sorted({*earlier, *planned}):
        if not (directory / path).exists():
            continue
        found = _hash((directory / path).read_bytes())
        if found not in (earlier.get(path), planned.get(path)):
            reason = (
                "has changed since it was exported"
                if path in earlier
                else "exists and is not from an export"
            )
            raise InputError(
                f"{directory / path}: {reason}",
                remedy="move it away, or name another directory with --out",
            )


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

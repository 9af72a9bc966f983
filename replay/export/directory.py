"""The directory of an exported project. Somebody works in it: nothing of theirs is overwritten."""

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
    """``export/1``: SHA-256 of each file of an export, by its path in the directory."""

    schema_: Annotated[Literal["export/1"], Field(alias="schema")] = "export/1"
    files: Mapping[str, str]


def write_project(files: Mapping[str, bytes], directory: Path) -> None:
    """Leave ``files`` in ``directory``, which is new, empty, or an earlier export of which no file
    has been changed since; what others have put beside them stays. A new directory is there as a
    whole or not at all.

    Raises :class:`InputError`, and :class:`OSError` where files cannot be written.
    """
    hashes = {path: _hash(content) for path, content in files.items()}
    document = {"schema": "export/1", "files": hashes}
    manifest = (json.dumps(document, indent=1) + "\n").encode()
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        _write_anew({**files, _MANIFEST: manifest}, directory)
        return
    earlier = _earlier_export(directory)
    _require_unchanged(directory, earlier, hashes)
    for path, content in files.items():
        write_atomically(directory / path, content)
    for path in earlier.keys() - files.keys():
        (directory / path).unlink(missing_ok=True)
    write_atomically(directory / _MANIFEST, manifest)


def _write_anew(files: Mapping[str, bytes], directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        scratch.chmod(0o755)
        for path, content in files.items():
            write_atomically(scratch / path, content)
        scratch.rename(directory)
    except BaseException:
        shutil.rmtree(scratch)
        raise


def _earlier_export(directory: Path) -> Mapping[str, str]:
    if not directory.is_dir() or not (directory / _MANIFEST).is_file():
        raise InputError(
            f"{directory}: is there, and no earlier export",
            remedy="name another directory with --out",
        )
    return read_json(directory / _MANIFEST, Manifest).files


def _require_unchanged(
    directory: Path, earlier: Mapping[str, str], planned: Mapping[str, str]
) -> None:
    """A file may also be as it is about to be written: an export that was cut off is done again."""
    for path in sorted({*earlier, *planned}):
        if not (directory / path).exists():
            continue
        found = _hash((directory / path).read_bytes())
        if found not in (earlier.get(path), planned.get(path)):
            since = (
                "has changed since it was exported" if path in earlier else "is not of an export"
            )
            raise InputError(
                f"{directory / path}: {since}",
                remedy="move it away, or name another directory with --out",
            )


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

"""YAML and JSON documents with strict models.

Errors of reading name file, key, value and what is allowed. Writing is atomic: after a power cut or
on a full disk, the previous file is intact.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from devices.documents import core_yaml
from devices.documents.disk import sync
from devices.documents.explain import explain, shown
from devices.documents.limits import (
    MOST_BYTES,
    LimitError,
    check_values,
    number,
    whole_number,
)
from devices.documents.regular import replaced_by_writing, require_regular
from devices.errors import InputError


class DocumentError(InputError):
    """A file cannot be read, or its content is not what its format allows."""


class StrictModel(BaseModel):
    """Base of every file format: immutable, and an unknown key is an error.

    A YAML list that is cut off after an item is still valid YAML. Files of a model with
    ``end_marked`` therefore end with YAML's ``...``; one that does not is incomplete.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )
    end_marked: ClassVar[bool] = False

    @classmethod
    def converted(cls, data: object) -> object:
        """Convert ``data`` of an older, still supported version of the format to this version."""
        return data


Model = TypeVar("Model", bound=StrictModel)


def read_yaml(path: Path, model: type[Model]) -> Model:
    """Read a YAML file.

    Args:
        path: File to read.
        model: Format of the file.

    Returns:
        The validated document.

    Raises:
        DocumentError: The file cannot be read, is not YAML, is cut off or does not fit ``model``.
    """
    text = read_text(path)
    try:
        data = core_yaml.load(text)
    except core_yaml.YamlError as error:
        raise DocumentError(f"{path}: not valid YAML: {error}") from None
    if data is None:
        raise DocumentError(f"{path}: the file is empty")
    document = validate(data, model, str(path))
    if model.end_marked and not _is_ended(text):
        raise DocumentError(
            f"{path}: the file is cut off: it does not end with a line of three dots"
        )
    return document


def read_json(path: Path | str, model: type[Model]) -> Model:
    """Read a JSON file.

    Args:
        path: File to read.
        model: Format of the file.

    Returns:
        The validated document.

    Raises:
        DocumentError: The file cannot be read, is not JSON or does not fit ``model``.
    """
    text = read_text(Path(path))
    if not text.strip():
        raise DocumentError(f"{path}: the file is empty")
    return validate(parse_json(text, str(path)), model, str(path))


def read_text(path: Path) -> str:
    """Read a text file of at most ``MOST_BYTES``.

    Raises:
        DocumentError: The file cannot be read, is not a regular one, is too large or is not UTF-8
            text.
    """
    try:
        require_regular(path)
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise DocumentError(
                f"{path}: larger than {MOST_BYTES >> 20} MiB, which no file of this format is"
            )
        return content.decode("utf-8-sig")  # without a byte order mark, which some editors write
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path}: not UTF-8 text ({error.reason})") from None


def parse_json(text: str, source: str) -> object:
    """Parse JSON strictly: a key may be given once.

    Args:
        text: A JSON document.
        source: Name of the document in error messages.

    Returns:
        The content, in types that JSON has.

    Raises:
        DocumentError: ``text`` is not JSON, or larger or deeper than any document of this project.
    """
    try:
        check_values(1 + sum(map(text.count, ",[{")))  # at least as many as there are
        return json.loads(
            text, parse_int=whole_number, parse_float=number, object_pairs_hook=_unique_keys
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise DocumentError(f"{source}: not valid JSON: {where}: {error.msg}") from None
    except LimitError as error:
        raise DocumentError(f"{source}: not valid JSON: {error}") from None
    except _RepeatedKeyError as error:
        raise DocumentError(f"{source}: the key {shown(str(error))} is given twice") from None
    except RecursionError:
        raise DocumentError(f"{source}: not valid JSON: nested too deeply") from None


def validate(data: object, model: type[Model], source: str) -> Model:
    """Validate data strictly: a number in quotes is text.

    Args:
        data: Content of a document, in types that JSON has.
        model: Format of the document.
        source: Name of the document in error messages.

    Returns:
        The validated document.

    Raises:
        DocumentError: ``data`` does not state its version, or does not fit ``model``; the message
            names the wrong keys.
    """
    version = model.model_fields.get("schema_")
    if version is not None and isinstance(data, dict) and "schema" not in data:
        (allowed,) = get_args(version.annotation)
        raise DocumentError(f"{source}: schema: missing; this key is required; allowed: {allowed}")
    try:
        text = json.dumps(model.converted(data), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise DocumentError(
            f"{source}: a text contains {half}, which is half a character; write the whole"
            " character"
        ) from None
    except RecursionError:
        raise DocumentError(f"{source}: nested too deeply") from None
    try:
        return model.model_validate_json(text, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] == "json_invalid":
            # The text is valid JSON, made from the data: only its depth can be the reason.
            raise DocumentError(f"{source}: nested too deeply") from None
        raise DocumentError(explain(error, model, source)) from None
    except RecursionError:
        raise DocumentError(f"{source}: nested too deeply") from None


def schema_of(path: Path) -> object:
    """The ``schema`` that a YAML or JSON file states; None if it states none or is neither."""
    try:
        data = core_yaml.load(read_text(path))
    except InputError:
        return None
    return data.get("schema") if isinstance(data, dict) else None


def stated_in_yaml(path: Path, key: str) -> object:
    """The value that a YAML file states for a top-level key; None if it states none.

    What follows the value is not parsed: the file may be no valid document. A file that cannot be
    read as far as the key states nothing.
    """
    try:
        return core_yaml.value_of(read_text(path), key)
    except InputError:
        return None


def dump_yaml(document: StrictModel) -> str:
    """Format a document as YAML text that :func:`read_yaml` reads back as the same document."""
    data = document.model_dump(mode="json", by_alias=True, exclude_none=True)
    return core_yaml.dump(data, end_marked=document.end_marked)


def dump_json(document: StrictModel) -> str:
    """Format a document as JSON text that :func:`read_json` reads back as the same document."""
    return document.model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n"


def write_atomically(path: Path | str, content: str | bytes | Callable[[Path], None]) -> None:
    """Write a file completely or not at all: write a temporary file beside it, sync, rename.

    Links are followed. An existing file keeps its mode.

    Args:
        path: File to write; missing parent directories are created.
        content: New content; text is encoded as UTF-8. Or a function that writes the file whose
            path it is given.

    Raises:
        OSError: Writing failed, for example because the disk is full, or ``path`` is no regular
            file. The error names ``path``, which is unchanged.
    """
    place = replaced_by_writing(Path(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    made = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with os.fdopen(handle, "wb") as stream:
            mode = (place.stat() if place.exists() else os.fstat(handle)).st_mode
            if not callable(content):
                stream.write(content.encode() if isinstance(content, str) else content)
        if callable(content):
            content(made)
        sync(made)
        made.chmod(stat.S_IMODE(mode))
        os.replace(made, place)
    except OSError as error:
        made.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        made.unlink()
        raise
    sync(place.parent)


def require_writable(path: Path) -> None:
    """Check, before work that takes long, that a file can be written where it is wanted.

    Args:
        path: The file; its directory need not exist.

    Raises:
        OSError: It cannot be written, as far as that shows now; the error names what is in the way.
    """
    place = replaced_by_writing(path)
    directory = next(parent for parent in place.absolute().parents if parent.exists())
    if not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _is_ended(text: str) -> bool:
    """Whether a YAML text ends with a line of three dots; comments may follow it."""
    for line in reversed(text.splitlines()):
        if content := line.partition("#")[0].rstrip():
            return content == "..."
    return False


class _RepeatedKeyError(Exception):
    """A key occurs twice in a JSON object; the message is the key."""


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise _RepeatedKeyError(counts.most_common(1)[0][0])
    return mapping

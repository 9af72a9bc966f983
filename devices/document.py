"""YAML and JSON documents with strict models: read with errors that name file, path, value and
what is allowed; written so that a power cut or a full disk loses nothing that was there before."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError


class DocumentError(ValueError):
    """A file that cannot be read, or whose content is not what its format allows."""


class StrictModel(BaseModel):
    """Base of every file format: an unknown key is an error, and nothing changes after reading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )


Model = TypeVar("Model", bound=BaseModel)


def read_yaml(path: Path, model: type[Model]) -> Model:
    """Raises :class:`DocumentError`."""
    text = _read_text(path)
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise DocumentError(f"{path}: not valid YAML: {_one_line(str(error))}") from None
    return validate(data, model, str(path))


def read_json(path: Path, model: type[Model]) -> Model:
    """Raises :class:`DocumentError`."""
    text = _read_text(path)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise DocumentError(f"{path}: not valid JSON: {error}") from None
    return validate(data, model, str(path))


def validate(data: Any, model: type[Model], source: str) -> Model:
    """``data`` as ``model``; raises :class:`DocumentError` naming every wrong key of ``source``."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise DocumentError(_explain(error, model, source)) from None


def dump_yaml(document: BaseModel) -> str:
    data = document.model_dump(mode="json", by_alias=True, exclude_none=True)
    return yaml.safe_dump(data, sort_keys=False, width=100, allow_unicode=True)


def write_atomically(path: Path, text: str) -> None:
    """Write next to ``path``, sync, rename. Raises :class:`OSError`; ``path`` is then untouched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DocumentError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path}: not UTF-8 text ({error.reason})") from None


def _explain(error: ValidationError, model: type[BaseModel], source: str) -> str:
    lines = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"]) or "top level"
        if problem["type"] == "extra_forbidden":
            lines.append(
                f"{source}: {where}: unknown key;"
                f" allowed here: {', '.join(_allowed_keys(model, problem['loc']))}"
            )
        elif problem["type"] == "missing":
            lines.append(f"{source}: {where}: this key is required and missing")
        else:
            found = repr(problem["input"])
            if len(found) > 80:
                found = found[:77] + "..."
            lines.append(f"{source}: {where}: found {found}; {problem['msg']}")
    return "\n".join(lines)


def _allowed_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys of the innermost model on the way to ``location`` (list indices and the tags of
    unions are steps that name no key)."""
    current: type[BaseModel] = model
    for part in location[:-1]:
        for candidate in _nested_models(current, part):
            current = candidate
            break
    return [field.alias or name for name, field in current.model_fields.items()]


def _nested_models(model: type[BaseModel], part: int | str) -> list[type[BaseModel]]:
    if not isinstance(part, str):
        return []
    for name, field in model.model_fields.items():
        if part in (name, field.alias):
            return [m for m in _models_in(field.annotation)]
    return []


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for argument in getattr(annotation, "__args__", ()) for m in _models_in(argument)]


def _one_line(text: str) -> str:
    return " ".join(text.split())

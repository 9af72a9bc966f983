"""Messages on invalid documents: which key, what was found, what is allowed."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from devices.documents.readable import printable

_MOST_SENTENCES = 5
_MOST_PROBLEMS = 10_000
_MOST_SHOWN = 80
_MOST_CHARACTERS = 1000
_FORMATS = {
    "device": "a device description",
    "device-profile": "a device profile",
    "costed-graph": "a costed graph",
    "schedule": "a schedule",
    "replay": "the report of a replay",
    "sweep": "the record of a sweep",
    "campaign": "a campaign",
    "campaign-cells": "the list of a campaign's cells",
    "campaign-cell": "the record of a campaign's cell",
    "campaign-repetition": "the record of a campaign's replay",
    "campaign-failures": "the list of a campaign's failures",
    "trials": "the trials of a block",
    "profile-run": "the state of a profile run",
    "export": "the list of an exported project's files",
}
"""Formats of files by the name that their ``schema`` begins with."""
_UNITS = {
    "_per_s": "per second",
    "_per_j": "per joule",
    "_bytes": "of bytes",
    "_hz": "of hertz",
    "_s": "of seconds",
    "_j": "of joules",
    "_w": "of watts",
}


def nearest(found: object, known: Iterable[str]) -> str | None:
    """Find the known name most similar to ``found``; None if none is similar."""
    if len(str(found)) > _MOST_SHOWN:
        return None
    matches = difflib.get_close_matches(str(found), list(known), n=1)
    return matches[0] if matches else None


def choices(found: object, known: Sequence[str]) -> str:
    """Format ``allowed: a, b, c``, after ``did you mean a?`` if a name is similar to ``found``."""
    near = nearest(found, known)
    meant = f"did you mean {near}? " if near else ""
    return f"{meant}allowed: {', '.join(known)}"


def explain(error: ValidationError, model: type[BaseModel], source: str) -> str:
    """Format one line for each problem of a document, at most five.

    For a document of another format, only the wrong ``schema`` is reported.
    """
    count = error.error_count()
    if count > _MOST_PROBLEMS:  # listing them would take gigabytes
        return f"{source}: {count} problems; the file is not of this format"
    problems = error.errors(include_url=False)
    other_format = [problem for problem in problems if problem["loc"] == ("schema",)]
    reported = other_format or _without_consequences(problems)
    lines = [
        f"{source}: {_shortened(printable(_sentence(problem, model)), _MOST_CHARACTERS)}"
        for problem in reported[:_MOST_SENTENCES]
    ]
    more = len(reported) - _MOST_SENTENCES
    if more > 0:
        lines.append(f"{source}: and {more} more problems")
    return "\n".join(lines)


def _without_consequences(problems: Sequence[ErrorDetails]) -> Sequence[ErrorDetails]:
    """Leave out that a list is too short if that is because its items are wrong."""
    around = {problem["loc"][:end] for problem in problems for end in range(len(problem["loc"]))}
    return [
        problem
        for problem in problems
        if problem["type"] != "too_short" or problem["loc"] not in around
    ]


@dataclass(frozen=True)
class _Place:
    """Place of a problem: its path, the models allowed there, and the enclosing model."""

    path: str
    models: tuple[type[BaseModel], ...]
    around: type[BaseModel]

    @property
    def unit(self) -> str:
        key = self.path.rpartition(".")[2]
        return next((f" {unit}" for end, unit in _UNITS.items() if key.endswith(end)), "")


def _sentence(problem: ErrorDetails, model: type[BaseModel]) -> str:
    place = _locate(model, problem["loc"])
    kind, found, context = problem["type"], problem["input"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        key = str(problem["loc"][-1])
        return f"{place.path}: unknown key; {choices(key, _keys(place.around))}"
    if kind == "missing":
        return f"{place.path}: missing; this key is required"
    if kind.startswith("union_tag"):
        return _wrong_tag(place, found, context["discriminator"].strip("'"))
    if kind == "value_error":
        prefix = f"{place.path}: " if place.path else ""
        return prefix + str(context["error"])
    if kind == "literal_error" and problem["loc"] == ("schema",):
        expected = context["expected"].strip("'")
        this, needed = (_FORMATS.get(str(name).partition("/")[0]) for name in (found, expected))
        if this is not None and needed is not None and this != needed:
            return f"this is {this} (schema: {found}), but {needed} is needed ({expected})"
    prefix = f"{place.path}: found " if place.path else "found "
    return f"{prefix}{shown(found)}; {_allowed(kind, found, context, place, problem['msg'])}"


def _wrong_tag(place: _Place, found: object, key: str) -> str:
    tags = [tag for candidate in place.models for tag in _tags(candidate).get(key, [])]
    if not isinstance(found, dict) or key not in found:
        return f"{place.path}.{key}: missing; this key is required; allowed: {', '.join(tags)}"
    return f"{place.path}.{key}: found {shown(found[key])}; {choices(found[key], tags)}"


def _allowed(kind: str, found: object, context: dict[str, Any], place: _Place, message: str) -> str:
    match kind.partition("_")[0]:
        case "int" | "float" | "finite" as number:
            noun = "a whole number" if number == "int" else "a number"
            plainly = ", plainly written, such as 4096 or 4e9" if isinstance(found, str) else ""
            return f"allowed: {noun}{place.unit}{plainly}"
        case "string" if kind == "string_type":
            quotes = f', in quotes: "{found}"' if isinstance(found, int | float) else ""
            return f"allowed: text{quotes}"
        case "string" if kind == "string_too_short":
            return "allowed: text that is not empty"
        case "string" if kind == "string_too_long":
            return f"allowed: at most {context['max_length']} characters"
        case "string" if kind == "string_pattern_mismatch":
            return f"allowed: text of the form {context['pattern']}"
        case "bool":
            return "allowed: true or false"
        case "path":
            return "allowed: a path"
        case "literal":
            known = [
                word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")
            ]
            return choices(found, known)
        case "greater":
            least = "at least {ge:g}" if "ge" in context else "more than {gt:g}"
            return f"allowed: {least.format(**context)}{place.unit.replace(' of', '')}"
        case "less":
            most = "at most {le:g}" if "le" in context else "less than {lt:g}"
            return f"allowed: {most.format(**context)}{place.unit.replace(' of', '')}"
        case "too" if kind == "too_long":
            return f"allowed: at most {context['max_length']} items"
        case "tuple" | "list" | "too":
            return "allowed: a list" + (" with at least one item" if kind == "too_short" else "")
        case "model" | "dict":
            return f"allowed: keys with values{_expected_keys(place.models)}"
        case _:
            return message


def _expected_keys(models: tuple[type[BaseModel], ...]) -> str:
    if not models:
        return ""
    if len(models) == 1:
        return f" ({', '.join(_keys(models[0]))})"
    key = next(iter(_tags(models[0])))
    return f", one of them {key}: {', '.join(_tags(model)[key][0] for model in models)}"


def _locate(model: type[BaseModel], location: tuple[int | str, ...]) -> _Place:
    """Follow pydantic's location through the models, leaving out the tags of unions.

    Pydantic inserts a union's tag into the location, or its own name of the type that did not fit;
    neither is a key of the file.
    """
    path = ""
    around = model
    names_type = False
    models: tuple[type[BaseModel], ...] = (model,)
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        tagged = [candidate for candidate in models if [part] in _tags(candidate).values()]
        if len(models) > 1 and tagged:
            models = (tagged[0],)
            continue
        if names_type:
            names_type = False
            continue
        path += f".{_shortened(part, _MOST_SHOWN)}" if path else _shortened(part, _MOST_SHOWN)
        if models:
            around = models[0]
            annotation = _annotation_at(around, part)
            models = tuple(_models_in(annotation))
            names_type = _is_union_of_types(annotation)
    return _Place(path, models, around)


def _annotation_at(model: type[BaseModel], key: str) -> Any:
    for name, field in model.model_fields.items():
        if key in (name, field.alias):
            return field.annotation
    return None


def _is_union_of_types(annotation: Any) -> bool:
    """Whether a type is a union that has other types than models, or a list of such a union."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Annotated, tuple, list):
        return _is_union_of_types(arguments[0])
    if origin not in (Union, UnionType):
        return False
    types = [each for each in arguments if each is not NoneType]
    if len(types) == 1:
        return _is_union_of_types(types[0])
    return not all(_models_in(each) for each in types)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _models_in(argument)]


def _tags(model: type[BaseModel]) -> dict[str, list[str]]:
    """Keys with exactly one allowed value, by which a union selects this model."""
    values = {
        field.alias or name: [str(value) for value in get_args(field.annotation)]
        for name, field in model.model_fields.items()
        if get_origin(field.annotation) is Literal
    }
    return {key: tags for key, tags in values.items() if len(tags) == 1}


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def shown(found: object) -> str:
    """Format a value of a document for a message, shortened."""
    if found is None:
        return "nothing"
    if isinstance(found, dict):
        return "keys with values"
    if isinstance(found, list):
        return "a list"
    text = repr(found) if isinstance(found, str) else json.dumps(found)
    return _shortened(text, _MOST_SHOWN)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."

"""docs/device-description.md has every key of the format, with its default and its choices."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic.fields import FieldInfo

from devices.description import DeviceDescription
from devices.documents.document import StrictModel
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "device-description.md").read_text()


def sections() -> dict[str, dict[str, tuple[str, str]]]:
    """By heading: default and meaning of each key."""
    found = {}
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", section, re.MULTILINE)
        found[section.splitlines()[0]] = {key: (default, says) for key, default, says in rows}
    return found


def models_of(annotation: Any) -> list[type[StrictModel]]:
    """The models that a value may be of."""
    if isinstance(annotation, type) and issubclass(annotation, StrictModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_of(part)]


def described(model: type[StrictModel], path: str) -> dict[str, type[StrictModel]]:
    """By heading: the model, and all models of its keys."""
    found = {_heading(model, path): model}
    for name, field in model.model_fields.items():
        for part in models_of(field.annotation):
            found |= described(part, f"{path}.{name}" if path else name)
    return found


def _heading(model: type[StrictModel], path: str) -> str:
    if not path:
        return "The board"
    kind = model.model_fields.get("kind")
    return f"`{path}`" + (f", `kind: {get_args(kind.annotation)[0]}`" if kind else "")


MODELS = described(DeviceDescription, "")


def test_the_page_has_a_section_for_every_part() -> None:
    assert list(sections()) == list(MODELS)


@pytest.mark.parametrize("heading", MODELS)
def test_a_section_has_every_key_in_order(heading: str) -> None:
    keys = [field.alias or name for name, field in MODELS[heading].model_fields.items()]
    assert list(sections()[heading]) == [key for key in keys if key != "kind"]


def _default(field: FieldInfo) -> object:
    value = field.default
    if isinstance(value, StrictModel):
        return {"kind": getattr(value, "kind", None)}
    return list(value) if isinstance(value, tuple) else value


def _stated(default: str) -> object:
    return None if default == "–" else yaml.safe_load(default.strip("`"))


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [f"`{choice}`" for choice in get_args(annotation)]
    return [choice for part in get_args(annotation) for choice in _choices(part)]


@pytest.mark.parametrize("heading", MODELS)
def test_defaults_and_choices_are_those_of_the_format(heading: str) -> None:
    section = sections()[heading]
    for name, field in MODELS[heading].model_fields.items():
        if name == "kind":
            continue
        default, says = section[field.alias or name]
        assert (default == "required") == field.is_required(), name
        if not field.is_required():
            expected = _default(field)
            assert _stated(default) in (expected, str(expected)), name
        if not models_of(field.annotation):
            assert all(choice in says for choice in _choices(field.annotation)), name

"""YAML by the core schema of YAML 1.2, read strictly.

PyYAML implements YAML 1.1, in which ``1e9`` is text, ``no`` is false, ``010`` is eight, ``12:30``
is a number, and the last value of a repeated key silently wins. Here numbers are what they look
like, and a repeated key is an error. This module uses PyYAML's parser and emitter;
:func:`plain_scalar` decides what a scalar means.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias, cast

import yaml

from devices.errors import InputError

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
# Python converts no text of more than 4300 digits to an int.
_MOST_DIGITS = 4000
_STANDARD_TAG = "tag:yaml.org,2002:"
_HINTS = {
    "cannot start any token": "indent with spaces, not tabs; text that begins with @ needs quotes",
    "mapping values are not allowed": "is a line indented too far, or does a text with a colon need"
    " quotes?",
    "end of stream": "is the file cut off?",
    "did not find expected": "is a line indented wrongly, or the file cut off?",
    "could not find expected": "is the file cut off?",
    "undefined alias": "text that begins with * needs quotes",
}


class YamlError(InputError):
    """The text is not the YAML that this module reads; the message names line and column."""


def load(text: str) -> Value:
    """Parse the one document in ``text``; None if it is empty. Raises :class:`YamlError`."""
    try:
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return None if root is None else _value(root)
    except yaml.MarkedYAMLError as error:
        raise YamlError(_sentence(error)) from None
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from None
    except RecursionError:
        raise YamlError("nested too deeply, or an alias that contains itself") from None


def dump(data: object, *, end_marked: bool = False) -> str:
    """Format ``data`` as YAML that :func:`load` reads back as the same values.

    ``end_marked``: end the text with a line of three dots.
    """
    text: str = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        width=100,
        allow_unicode=True,
        explicit_end=end_marked,
    )
    return text


def whole_number(text: str) -> int | float:
    """Parse a whole number; one of thousands of digits is infinite."""
    return int(text) if len(text) <= _MOST_DIGITS else float(text)


def number(text: str) -> int | float:
    """Parse a decimal number; an exact whole number (``1e9``, ``4.0``) becomes an int."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) <= 2**53 else value


def plain_scalar(text: str) -> bool | int | float | str | None:
    """Convert an unquoted scalar to its value (YAML 1.2.2, section 10.3.2)."""
    if text in _NULL:
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if _INTEGER.fullmatch(text):
        return whole_number(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return number(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _value(node: yaml.Node) -> Value:
    if not node.tag.startswith(_STANDARD_TAG):
        raise YamlError(f"{_position(node.start_mark)}: the tag {node.tag} has no meaning here")
    if isinstance(node, yaml.MappingNode):
        return _mapping(node)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    quoted = isinstance(node, yaml.ScalarNode) and bool(node.style)
    return node.value if quoted else plain_scalar(node.value)


def _mapping(node: yaml.MappingNode) -> dict[str, Value]:
    mapping: dict[str, Value] = {}
    first_line: dict[str, int] = {}
    for key_node, value_node in node.value:
        where = _position(key_node.start_mark)
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlError(f"{where}: a key must be a word, not a list or a mapping")
        key = key_node.value
        if key in mapping:
            raise YamlError(f"{where}: the key {key!r} is already given in line {first_line[key]}")
        first_line[key] = key_node.start_mark.line + 1
        mapping[key] = _value(value_node)
    return mapping


def _position(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _sentence(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join(part for part in (error.problem, error.context) if part)
    mark = error.problem_mark or error.context_mark
    where = f"{_position(mark)}: " if mark else ""
    hint = next((f" ({hint})" for cause, hint in _HINTS.items() if cause in problem), "")
    return f"{where}{problem}{hint}"


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quote text that YAML 1.2 would read as a number, such as a card's identity 12e5."""
    style = None if isinstance(plain_scalar(text), str) else '"'
    return dumper.represent_scalar(_STANDARD_TAG + "str", text, style=style)


_Dumper = cast(
    type[yaml.SafeDumper], type("_Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})
)
_Dumper.add_representer(str, cast(Any, _represent_text))

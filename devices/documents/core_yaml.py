"""YAML by the core schema of YAML 1.2, read strictly.

PyYAML implements YAML 1.1, in which ``1e9`` is text, ``no`` is false, ``010`` is eight, ``12:30``
is a number, and the last value of a repeated key silently wins. Here numbers are what they look
like, and a repeated key is an error. This module uses PyYAML's parser and emitter;
:func:`plain_scalar` decides what a scalar means. Values are built from the parser's events, so that
limits hold before anything is built: PyYAML's composer would follow any nesting until the stack
overflows, and expand any aliases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import yaml

from devices.documents.limits import (
    MOST_BYTES,
    LimitError,
    check_levels,
    check_values,
    number,
    whole_number,
)
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
_MOST_SHOWN = 60
_STANDARD_TAG = "tag:yaml.org,2002:"
_HINTS = {
    "cannot start any token": "indent with spaces, not tabs; text that begins with @ needs quotes",
    "mapping values are not allowed": "is a line indented too far, or does a text with a colon need"
    " quotes?",
    "end of stream": "is the file cut off?",
    "did not find expected": "is a line indented wrongly, or the file cut off?",
    "could not find expected": "is the file cut off?",
}


class YamlError(InputError):
    """The text is not the YAML that this module reads; the message names line and column."""


def load(text: str) -> Value:
    """Parse the one document in ``text``; None if it is empty. Raises :class:`YamlError`."""
    with _explained():
        return _Reader(text).document()


def value_of(text: str, key: str) -> Value:
    """Find the value of a top-level key; None if the document has no such key.

    What follows the value is not parsed. Raises :class:`YamlError`, and
    :class:`~devices.documents.limits.LimitError` for a mapping of too many keys.
    """
    with _explained():
        return _Reader(text).value_of(key)


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


def plain_scalar(text: str) -> bool | int | float | str | None:
    """Convert an unquoted scalar to its value (YAML 1.2.2, section 10.3.2).

    Raises :class:`~devices.documents.limits.LimitError` for a number of too many digits.
    """
    if text in _NULL:
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if _INTEGER.fullmatch(text) or _OTHER_BASE.fullmatch(text):
        return whole_number(text)
    if _FLOAT.fullmatch(text):
        return number(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


@dataclass(frozen=True)
class _Anchored:
    """A value with an anchor. ``values``, ``characters`` and ``levels`` are what it adds to the
    document where an alias repeats it."""

    value: Value
    values: int
    characters: int
    levels: int


class _Reader:
    """Builds the value of a document from the events of PyYAML's parser."""

    def __init__(self, text: str) -> None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=loader)
        self._anchored: dict[str, _Anchored | None] = {}  # None: its value is not complete
        self._values = 0
        self._characters = 0
        self._deepest = 0

    def document(self) -> Value:
        """The value of the only document; None without one."""
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(next(self._events), 0)
        next(self._events)  # the end of the document
        following = next(self._events)
        if not isinstance(following, yaml.StreamEndEvent):
            where = _place(following)
            raise YamlError(f"{where}: a second document begins; allowed: one in a file")
        return value

    def value_of(self, key: str) -> Value:
        """The value of a key of the document's mapping; None if there is no such key."""
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        if not isinstance(next(self._events), yaml.MappingStartEvent):
            return None
        return next((value for found, value in self._items(1) if found == key), None)

    def _value(self, event: yaml.Event, level: int) -> Value:
        try:
            if isinstance(event, yaml.AliasEvent):
                return self._repeated(event, level)
            anchor = cast(str | None, getattr(event, "anchor", None))
            if anchor is None:
                return self._built(event, level)
            before = self._values, self._characters, self._deepest
            self._anchored[anchor] = None
            self._deepest = level
            value = self._built(event, level)
            self._anchored[anchor] = _Anchored(
                value,
                self._values - before[0],
                self._characters - before[1],
                self._deepest - level,
            )
            self._deepest = max(self._deepest, before[2])
        except LimitError as error:
            raise YamlError(f"{_place(event)}: {error}") from None
        return value

    def _repeated(self, event: yaml.AliasEvent, level: int) -> Value:
        name = str(event.anchor)
        if name not in self._anchored:
            raise YamlError(
                f"{_place(event)}: no anchor &{_shortened(name)} comes before the"
                " alias; text that begins with * needs quotes"
            )
        anchored = self._anchored[name]
        if anchored is None:
            raise YamlError(
                f"{_place(event)}: the alias *{_shortened(name)} is a part of what it repeats"
            )
        self._count(anchored.values, anchored.characters)
        self._enter(level + anchored.levels)
        return anchored.value

    def _built(self, event: yaml.Event, level: int) -> Value:
        tag = cast(str | None, getattr(event, "tag", None))
        if tag is not None and tag != "!" and not tag.startswith(_STANDARD_TAG):
            where = _place(event)
            raise YamlError(f"{where}: the tag {_shortened(tag)} has no meaning here")
        if isinstance(event, yaml.ScalarEvent):
            self._count(1, len(event.value))
            return event.value if event.style else plain_scalar(event.value)
        self._count(1, 0)
        self._enter(level + 1)
        if isinstance(event, yaml.MappingStartEvent):
            return dict(self._items(level + 1))
        sequence = []
        while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
            sequence.append(self._value(item, level + 1))
        return sequence

    def _items(self, level: int) -> Iterator[tuple[str, Value]]:
        """Keys and values of the mapping whose start was the last event."""
        first_line: dict[str, int] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            where = _place(event)
            if not isinstance(event, yaml.ScalarEvent):
                raise YamlError(f"{where}: a key must be a word, not a list, a mapping or an alias")
            self._count(1, len(event.value))
            key = event.value
            if key in first_line:
                shown = _shortened(repr(key))
                raise YamlError(
                    f"{where}: the key {shown} is already given in line {first_line[key]}"
                )
            first_line[key] = _mark(event).line + 1
            yield key, self._value(next(self._events), level)

    def _count(self, values: int, characters: int) -> None:
        self._values += values
        self._characters += characters
        check_values(self._values)
        if self._characters > MOST_BYTES:
            raise LimitError("aliases repeat more text than a file may have")

    def _enter(self, level: int) -> None:
        check_levels(level)
        self._deepest = max(self._deepest, level)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of PyYAML into :class:`YamlError`."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        raise YamlError(_sentence(error)) from None
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from None


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def _mark(event: yaml.Event) -> yaml.Mark:
    return cast(yaml.Mark, event.start_mark)


def _place(event: yaml.Event) -> str:
    return _position(_mark(event))


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

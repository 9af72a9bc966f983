"""Inputs made from valid examples: changes of bytes, of structure, and inputs from nothing."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Data: TypeAlias = Any  # what JSON can hold
Dump: TypeAlias = Callable[[Data], str]

_CHANGES = (1, 1, 1, 1, 2, 3, 5)
_LONGEST_NOISE = 2000
_TOKENS = (
    *("[" * 1000, "{" * 1000, '{"a":' * 300, "]", "}", "[", "{", ",", ":", "- " * 300, "? ", ": "),
    *("&a ", "*a", "&a [*a]", "<<: *a", "!!binary ", "!x ", "%YAML 9.9\n", "---\n", "...\n", "|\n"),
    *("9" * 5000, "0x" + "f" * 2000, "1e999", "-1e308", "1e308", "5e-324", "1." + "0" * 1000),
    *(
        "NaN",
        "Infinity",
        "-.inf",
        ".nan",
        "-0",
        "null",
        "true",
        '"',
        "'",
        "\\",
        "\\ud800",
        "\\u0000",
    ),
    *("\t", "\r", "\n", "\x00", "\x1b[31m", "\ufeff", "\u2028", "\U0001f600", "ä", "x" * 10_000),
)
_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
_VALUES: Sequence[Data] = (
    *(None, True, False, 0, 1, -1, 2, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 10**30, 10**390),
    *(0.5, -0.0, 1e-300, 5e-324, 1e9, 1e18, 1e300, 1.7976931348623157e308, float("inf")),
    *(float("nan"), "", " ", "a", "0", "nan", "x" * 5000, "\n", "\x00", "\ud800", "../../etc"),
    *("=" * 300, "ram", "storage", [], {}, [[]], [{}], {"": {}}, {"schema": "x"}, [0] * 2000),
)


def made_input(chance: random.Random, examples: Sequence[str], dump: Dump | None) -> bytes:
    """One input.

    Args:
        chance: Source of all decisions.
        examples: Valid documents.
        dump: Writes data as a document of the format; None if the examples are not JSON or YAML.

    Returns:
        The input, valid or not.
    """
    way = chance.random()
    if way < 0.05:
        return chance.randbytes(chance.randrange(_LONGEST_NOISE))
    if way < 0.1:
        return "".join(chance.choices(_TOKENS, k=chance.randrange(1, 20))).encode()
    if way < 0.15 and dump is not None:
        return _encoded(dump(_random_data(chance, 0)))
    text = chance.choice(examples)
    if way < 0.55 or dump is None:
        return _changed_text(chance, text, examples)
    data = json.loads(text)
    for _ in range(chance.choice(_CHANGES)):
        data = _changed_data(chance, data)
    try:
        return _encoded(dump(data))
    except RecursionError:  # nested deeper than the writer can write
        return _changed_text(chance, text, examples)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogatepass")


def _changed_text(chance: random.Random, text: str, examples: Sequence[str]) -> bytes:
    content = bytearray(_encoded(text))
    for _ in range(chance.choice(_CHANGES)):
        begin, end = sorted(chance.randrange(len(content) + 1) for _ in range(2))
        match chance.randrange(8):
            case 0:
                del content[begin:]
            case 1:
                del content[begin : min(end, begin + 50)]
            case 2:
                content[begin:begin] = content[begin : min(end, begin + 500)]
            case 3:
                content[begin : begin + 1] = chance.randbytes(1)
            case 4:
                content[begin:begin] = chance.randbytes(chance.randrange(1, 20))
            case 5:
                other = _encoded(chance.choice(examples))
                content[begin:end] = other[begin:end]
            case 6 if chance.random() < 0.1:
                content[begin:begin] = b"\n" + _BOMB.encode()
            case _:
                content[begin:begin] = chance.choice(_TOKENS).encode()
    return bytes(content)


def _random_data(chance: random.Random, level: int) -> Data:
    if level > 6 or chance.random() < 0.3:
        return _value(chance)
    size = chance.randrange(5)
    if chance.random() < 0.5:
        return [_random_data(chance, level + 1) for _ in range(size)]
    keys = ("schema", "name", "ops", "kind", "a", "")
    return {chance.choice(keys): _random_data(chance, level + 1) for _ in range(size)}


def _changed_data(chance: random.Random, data: Data) -> Data:
    """The data with one change in the children of one list or mapping. ``data`` is changed."""
    places = list(_containers(data))
    if not places:
        return _value(chance)
    place = chance.choice(places)
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    key = chance.choice(keys)
    match chance.randrange(8):
        case 0:
            del place[key]
        case 1:
            other = chance.choice(places)
            place[key] = json.loads(json.dumps(other))
        case 2 if isinstance(place, list):
            place.insert(chance.randrange(len(place) + 1), json.loads(json.dumps(place[key])))
        case 2:
            place[chance.choice(("x", "", "Schema", str(key) + "s", "\ud800"))] = place[key]
        case 3 if isinstance(place, list):
            chance.shuffle(place)
        case 4 if isinstance(place[key], int | float) and abs(place[key]) < 1e300:
            place[key] = place[key] * chance.choice((-1, 0, 0.5, 2, 1e6, 1e-6, 10**20))
        case 5:
            for _ in range(chance.choice((1, 60, 70, 300))):
                place[key] = [place[key]]
        case 6:
            twin = chance.choice(keys)
            place[key], place[twin] = place[twin], place[key]
        case _:
            place[key] = _value(chance)
    return data


def _value(chance: random.Random) -> Data:
    """A hostile value; a copy, since later changes may go into it."""
    return copy.deepcopy(chance.choice(_VALUES))


def _containers(data: Data) -> list[Data]:
    """All lists and mappings in the data that are not empty."""
    found, left = [], [data]
    while left:
        each = left.pop()
        children = list(each.values()) if isinstance(each, dict) else each
        if isinstance(children, list) and children:
            found.append(each)
            left.extend(children)
    return found

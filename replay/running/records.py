"""Parse a replay's records: checksums, spans and counters beside those of windows."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from devices.errors import MeasurementInvalid
from devices.replay import Counters, ProcessMemory, Span
from profiler.script.records import Results, parse_results

_OWN = frozenset({"probes", "spans", "counters", "recovered", "process", "watching"})

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class ReplayRecords:
    """Records of a replay.

    Attributes:
        results: the records of the windows.
        probes: checksums by window id; only the last window's can be incomplete, if the replay was
            interrupted.
        spans: spans of the plan's actions by window id, likewise.
        paused: ids of the windows in which the board paused, so that it could be read.
        counters: the executor's counters, each time that they were read.
        memory: memory of the process on a Linux board.
        recovered_step: the last complete step in storage.
    """

    results: Results
    probes: Mapping[int, tuple[int, ...]]
    spans: Mapping[int, tuple[Span, ...]]
    paused: frozenset[int]
    counters: tuple[Counters, ...]
    memory: ProcessMemory | None
    recovered_step: int | None


def parse_replay(text: str) -> ReplayRecords:
    """Parse the text of records, as :func:`~profiler.script.records.parse_results` does.

    Raises:
        MeasurementInvalid: a record cannot be read.
    """
    others: list[str] = []
    own = _Own()
    for line in text[: text.rfind("\n") + 1].splitlines():
        word, *pairs = line.split(" ")
        if word not in _OWN:
            others.append(f"{line}\n")
        try:
            fields = dict(pair.partition("=")[::2] for pair in pairs)
            own.read(word, fields)
        except (KeyError, TypeError, ValueError, struct.error):
            raise MeasurementInvalid(f"record {line!r} cannot be read") from None
    return ReplayRecords(
        results=parse_results("".join(others)),
        probes={id_: tuple(values) for id_, values in own.probes.items()},
        spans={id_: tuple(values) for id_, values in own.spans.items()},
        paused=frozenset(own.paused),
        counters=tuple(own.counters),
        memory=own.memory,
        recovered_step=own.recovered_step,
    )


@dataclass
class _Own:
    window: int = -1
    probes: dict[int, list[int]] = field(default_factory=dict)
    spans: dict[int, list[Span]] = field(default_factory=dict)
    paused: set[int] = field(default_factory=set)
    counters: list[Counters] = field(default_factory=list)
    memory: ProcessMemory | None = None
    recovered_step: int | None = None

    def read(self, word: str, fields: Mapping[str, str]) -> None:
        match word:
            case "window":
                self.window = int(fields["id"])
            case "watching":
                self.window = int(fields["id"])
                self.paused.add(self.window)
            case "probes":
                _append(self.probes.setdefault(self.window, []), fields, _probe)
            case "spans":
                _append(self.spans.setdefault(self.window, []), fields, _span)
            case "counters":
                self.counters.append(Counters(**{k: int(v) for k, v in fields.items()}))
            case "process":
                sizes = {key: int(value) for key, value in fields.items()}
                self.memory = ProcessMemory(limit="address space", **sizes)
            case "recovered":
                self.recovered_step = int(fields["step"])


def _append(
    values: list[_Value], fields: Mapping[str, str], parse: Callable[[str], _Value]
) -> None:
    """Append a piece of a list; pieces may overlap. Raises :class:`ValueError` for a gap."""
    first = int(fields["first"])
    if first > len(values):
        raise ValueError(first)
    values[first:] = [parse(item) for item in fields["values"].split(",")]


def _probe(text: str) -> int:
    return int(text, 16)


def _span(text: str) -> Span:
    start, _, length = text.partition(":")
    return Span(_float(start), _float(length))


def _float(bits: str) -> float:
    (value,) = struct.unpack(">f", bytes.fromhex(bits))
    return float(value)

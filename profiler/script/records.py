"""Results of the harness on the board: a record for every window, and the meter's samples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from devices.errors import MeasurementInvalid
from profiler.meters.base import BoardSamples

FIRST_LINE = "joulewright-results 1"

_START = re.compile(r"^start boot_id=(\S+) ", re.MULTILINE)
_UNKNOWN = "-"


@dataclass(frozen=True)
class WindowRecord:
    """Record of one window.

    ``tail_end_ns`` is the end of the medium's settling (``end_ns`` without settling);
    ``running_ns`` excludes the time for which the thread was preempted. Frequencies and temperature
    are 0 where the board reports none. ``throttled`` (Raspberry Pi's bits) and ``cooling`` (sum of
    the states of cooling devices that slow processors down) are as at the end of the window, -1
    where the board reports none.
    """

    id: int
    executions: int
    start_ns: int
    end_ns: int
    tail_end_ns: int
    running_ns: int
    frequency_before_khz: int
    frequency_after_khz: int
    temperature_mc: int
    tries: int
    throttled: int = -1
    cooling: int = -1


@dataclass(frozen=True)
class Health:
    """State of the board at one end of a block. ``steal_ms`` is the time that a hypervisor took
    since boot; the rest as in :class:`WindowRecord`."""

    boot_id: str
    clock_ns: int
    steal_ms: int
    temperature_mc: int = 0
    throttled: int = -1
    cooling: int = -1


@dataclass(frozen=True)
class Results:
    """Parsed results of a harness run. ``end`` is None if the harness was stopped before its last
    window. ``is_direct`` is None without transfers."""

    start: Health | None
    windows: tuple[WindowRecord, ...]
    is_direct: bool | None
    end: Health | None


def parse_results(text: str) -> Results:
    """Parse the harness's results. An incomplete last line is left out.

    Args:
        text: Content of the results file.

    Raises:
        MeasurementInvalid: Anything else is malformed.
    """
    lines = text[: text.rfind("\n") + 1].splitlines()
    if not lines:
        return Results(None, (), None, None)
    if lines[0] != FIRST_LINE:
        raise MeasurementInvalid(f"records begin with {lines[0]!r} instead of {FIRST_LINE!r}")
    start: Health | None = None
    end: Health | None = None
    windows: list[WindowRecord] = []
    is_direct: bool | None = None
    for line in lines[1:]:
        word, *pairs = line.split(" ")
        fields = dict(pair.partition("=")[::2] for pair in pairs)
        try:
            match word:
                case "window":
                    windows.append(WindowRecord(**{k: int(v) for k, v in fields.items()}))
                case "start":
                    start = _health(fields)
                case "end":
                    end = _health(fields)
                case "scratch":
                    is_direct = fields["direct"] == "1"
                case _:
                    raise MeasurementInvalid(f"record {line!r} is of an unknown kind")
        except (KeyError, TypeError, ValueError):
            raise MeasurementInvalid(f"record {line!r} cannot be read") from None
    return Results(start, tuple(windows), is_direct, end)


def _health(fields: Mapping[str, str]) -> Health:
    boot_id = fields["boot_id"]
    return Health(boot_id, **{k: int(v) for k, v in fields.items() if k != "boot_id"})


def boot_of(text: str) -> str | None:
    """Id of the boot in which the harness wrote these results; None where they do not say.

    Args:
        text: Content of the results file, as far as it was written.
    """
    found = _START.search(text)
    return None if found is None or found[1] == _UNKNOWN else found[1]


def parse_samples(text: str, files: int) -> BoardSamples:
    """Parse samples of ``files`` files. Raises as :func:`parse_results`."""
    lines = text[: text.rfind("\n") + 1].splitlines()
    try:
        table = np.array([line.split(" ") for line in lines], dtype=np.int64)
        table = table.reshape(len(lines), 1 + files)
    except (ValueError, OverflowError):
        raise MeasurementInvalid("the meter's samples cannot be read") from None
    return BoardSamples(times_ns=table[:, 0], values=table[:, 1:])

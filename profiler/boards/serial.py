"""A microcontroller with the firmware on it, reached over a serial line.

The plan stays on this computer and goes to the board line by line. Each line is answered with its
record, so finished records are safe when the board or this program is cut off.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from devices.description import DeviceDescription, SerialTransport
from devices.errors import (
    BoardCommandFailed,
    BoardInUse,
    BoardUnreachable,
    FirmwareMismatch,
    JoulewrightError,
    MeasurementInvalid,
    OtherFirmware,
)
from devices.meters import GpioSync, feeds_board
from devices.operation import OpSpec
from devices.profile import BoardIdentity, Build
from devices.program import command_line
from profiler.boards.base import BoardFacts, Outcome, RebootError, Wait
from profiler.boards.clock import read_clock
from profiler.boards.plan_data import NO_DATA, PlanData
from profiler.building.firmware_image import FirmwareIdentity, firmware_identity
from profiler.building.toolchain import KERNEL_FLAGS
from profiler.meters.base import ClockReading
from profiler.script.records import FIRST_LINE
from profiler.script.writer import workspace_query
from profiler.transports.deadline import Deadline
from profiler.transports.serial.exchange import Silence, StrangerError
from profiler.transports.serial.line import Line
from profiler.transports.serial.session import PROTOCOL, SerialSession

_PULSE_S = 0.5
_PORT_POLL_S = 0.2
_SHOWN_HASH = 8

# Beyond what its line allows, a window may last as long as its longest single execution, which is a
# guess before the first block. Asking early only costs a byte that the busy board ignores; a board
# is not given up before ten times that guess.
_QUIET_EXPECTATIONS = 1.5
_QUIET_S = 0.25
_MOST_GUESSES = 10.0

_RECORDS = {"window", "watching", "probes", "spans", "counters", "recovered"}
"""Answers to a plan's lines that belong to its results, by their first word."""

# Time for the board to leave a window that was given up.
_RESTART_LIMIT_S = 3.0

# Part numbers in the CPUID register (Arm, Cortex-M technical reference manuals).
_PARTS = {
    0xC20: "Cortex-M0",
    0xC60: "Cortex-M0+",
    0xC21: "Cortex-M1",
    0xC23: "Cortex-M3",
    0xC24: "Cortex-M4",
    0xC27: "Cortex-M7",
    0xD20: "Cortex-M23",
    0xD21: "Cortex-M33",
    0xD22: "Cortex-M55",
    0xD23: "Cortex-M85",
}


class SerialBoard:
    """Implements :class:`~profiler.boards.base.Board` for firmware on a serial line.

    Args:
        description: A board with a serial transport whose port is known.
        expected: Firmware that must be on the board; by default that of the description.
    """

    facts: BoardFacts
    build: Build

    def __init__(
        self, description: DeviceDescription, expected: FirmwareIdentity | None = None
    ) -> None:
        reached = description.transport
        if not isinstance(reached, SerialTransport) or reached.port is None:
            raise ValueError(
                f"{description.name} is not on a serial line, or its port is not known"
            )
        self._description = description
        self._deadline_s = reached.deadline_s
        self._expected = firmware_identity(description) if expected is None else expected
        self._name = f"{description.name} at {reached.port}"
        self._session = SerialSession(
            Line(reached.port, reached.baud), self._name, reached.deadline_s
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def storage_place(self) -> str | None:
        """Start of the ``storage.scratch_bytes`` that the description allows to overwrite."""
        storage = self._description.storage
        return None if storage is None else f"offset={storage.scratch_offset_bytes}"

    def prepare(self, progress: Callable[[str], None]) -> None:
        """Read the board's facts. Raises :class:`~devices.errors.FirmwareMismatch` if its firmware
        is not that of the description, :class:`~devices.errors.OtherFirmware` if only what it was
        built from differs."""
        progress(f"identifying {self._name}")
        reply = self._session.hello()
        self._check(reply)
        self.build = Build(
            kernels_sha256=reply["kernels"],
            compiler=reply["compiler"],
            flags=(*KERNEL_FLAGS, *self._description.toolchain.flags),
            matmul=reply["matmul"],
            threads=1,
        )
        self.facts = self._facts(reply)

    def workspace_bytes(self, specs: Sequence[OpSpec]) -> dict[OpSpec, int]:
        """Workspace that the kernels of these operations need."""
        lines = _body(workspace_query(specs))
        with self._same_start():
            return {
                spec: int(self._session.line(line)) for spec, line in zip(specs, lines, strict=True)
            }

    def throttled(self) -> None:
        """None: no microcontroller throttles."""

    def temperature_c(self) -> float | None:
        temperature_mc = self._health()["temperature_mc"]
        return temperature_mc / 1e3 if temperature_mc else None

    def clock(self) -> ClockReading:
        return read_clock(lambda: self._health()["clock_ns"])

    def run_plan(
        self, plan: str, *, expected_s: float, wait: Wait, data: PlanData = NO_DATA
    ) -> Outcome:
        """Run a plan line by line, as :meth:`profiler.boards.base.Board.run_plan`."""
        lines = _body(plan)
        expectation = _Expectation(lines, expected_s, self._deadline_s)
        records = [FIRST_LINE]
        dumped = bytearray()
        self._session.on_wait(_Pulse(wait))
        try:
            with self._same_start():
                records.append(self._health_record("start"))
                for line in lines:
                    match line.partition(" ")[0]:
                        case "load":
                            self._load(line, data)
                        case "dump":
                            dumped += self._dump(line)
                        case _:
                            answer = self._session.line(line, expectation.silence(line))
                            records.extend(_records(line, answer))
                records.append(self._health_record("end"))
        except (JoulewrightError, KeyboardInterrupt) as cut:
            return Outcome(_text(records), "", cut, bytes(dumped))
        finally:
            self._session.on_wait(lambda: None)
        return Outcome(_text(records), "", dumped=bytes(dumped))

    def close(self) -> None:
        """Close the line. A board that is in a window is restarted first, if it answers in time."""
        try:
            if self._session.in_window:
                with suppress(JoulewrightError):
                    self._session.hello(deadline_s=_RESTART_LIMIT_S)
                    self._session.restart()
        finally:
            self._session.close()

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> None:
        """Open the line. The port of a board that its meter feeds may only be about to appear."""
        limit = Deadline(self._deadline_s if feeds_board(self._description.meter) else 0.0)
        while True:
            try:
                self._session.open()
            except BoardInUse:
                raise
            except BoardUnreachable:
                if limit.expired:
                    raise
                time.sleep(min(_PORT_POLL_S, limit.remaining_s))
            else:
                return

    def _load(self, line: str, data: PlanData) -> None:
        address, length, at = (int(_pairs(line)[key]) for key in ("address", "bytes", "at"))
        self._session.write(address, data.read(at, length))

    def _dump(self, line: str) -> bytes:
        address, length = (int(_pairs(line)[key]) for key in ("address", "bytes"))
        return self._session.read(address, length)

    def _check(self, reply: Mapping[str, str]) -> None:
        description, expected = self._description, self._expected
        memory, processor = description.memory, description.processor
        assert memory is not None
        assert processor is not None
        wanted = {
            "protocol": PROTOCOL,
            "board": expected.board,
            "firmware": expected.firmware_sha256,
            "kernels": expected.kernels_sha256,
            "clock_hz": str(round(processor.clock_hz)),
            "ram_bytes": str(memory.ram_bytes),
            "flash_bytes": str(memory.flash_bytes),
        }
        if "protocol" in reply and reply["protocol"] != PROTOCOL:
            wanted = {"protocol": PROTOCOL}  # the rest may mean something else
        wrong = {
            key: f"{key} is {_short(reply.get(key, 'missing'))} instead of {_short(value)}"
            for key, value in wanted.items()
            if reply.get(key) != value
        }
        if wrong:
            is_known = "firmware" in wrong and "protocol" not in wrong and "board" not in wrong
            kind = OtherFirmware if is_known else FirmwareMismatch
            raise kind(
                f"{self._name}: its firmware is not that of the description:"
                f" {'; '.join(wrong.values())}."
                f" Flash the right one with:"
                f" {command_line('flash', '--device', description.reference)}"
            )
        if reply.get("counter") == "none":
            raise MeasurementInvalid(
                f"{self._name}: no counter of the board advances, so it cannot measure time",
                remedy=f"the board support {expected.board} has to name another one",
            )

        sync = getattr(description.meter, "sync", None)
        if isinstance(sync, GpioSync) and reply.get("sync") == "none":
            raise MeasurementInvalid(
                f"{self._name}: board support {expected.board} drives no sync line",
                remedy="name a pin there, or describe meter.sync as marker or steady",
            )

    def _facts(self, reply: Mapping[str, str]) -> BoardFacts:
        processor, memory = self._description.processor, self._description.memory
        firmware = self._description.firmware
        assert processor is not None
        assert memory is not None
        cache_bytes = processor.data_cache_bytes or 0
        return BoardFacts(
            identity=BoardIdentity(
                model=self._description.model,
                memory_bytes=int(reply["ram_bytes"]),
                serial=reply.get("serial"),
                kernel=f"firmware {reply['firmware'][:_SHOWN_HASH]}",
                cpu=_processor(reply["cpuid"]),
                cores=processor.cores,
                cpu_frequency_hz=float(reply["clock_hz"]),
                last_level_cache_bytes=cache_bytes,
                storage_card=self._storage_card(),
                # Elsewhere, the firmware's data have a memory of their own.
                shares_ram=firmware is not None and firmware.data_address is None,
            ),
            boot_id=f"{self._session.number:04x}",
            last_level_cache_bytes=cache_bytes,
            is_cache_known=True,
            available_bytes=min(int(reply["arena_bytes"]), memory.usable_bytes),
        )

    def _storage_card(self) -> str | None:
        """Identity of the storage card; None without one.

        A board without its card can measure everything except storage, whose own lines then report
        the error.
        """
        if self._description.storage is None:
            return None
        try:
            return _pairs(self._session.line("storage")).get("card")
        except BoardCommandFailed:
            return None

    def _health(self) -> dict[str, int]:
        with self._same_start():
            reply = self._session.line("health")
        return {key: int(value) for key, value in _pairs(reply).items()}

    def _health_record(self, word: str) -> str:
        clock_ns = self._health()["clock_ns"]
        return f"{word} boot_id={self.facts.boot_id} clock_ns={clock_ns} steal_ms=0"

    @contextmanager
    def _same_start(self) -> Iterator[None]:
        """Detect a restart of the board. Raises :class:`~profiler.boards.base.RebootError` with the
        fault that its firmware reports."""
        try:
            yield
        except StrangerError as error:
            fault = "none"
            with suppress(JoulewrightError):
                fault = self._session.hello().get("fault", fault)
            reason = (
                "check its power supply" if fault == "none" else f"its firmware reports: {fault}"
            )
            raise RebootError(
                f"{self._name}: the board restarted while it was measuring; {reason}"
            ) from error


class _Expectation:
    """How long the window of a line may last.

    That is the time that the line allows, plus the window's share of the caller's ``expected_s``.
    The window of a whole step has as many shares as it has calls.
    """

    def __init__(self, lines: Sequence[str], expected_s: float, deadline_s: float) -> None:
        windows = sum(" id=" in line for line in lines)
        self._share_s = expected_s / max(1, windows)
        self._deadline_s = deadline_s
        self._tries = 1.0
        self._allowed_s = 0.0
        self._guess_s = self._share_s

    def silence(self, line: str) -> Silence:
        """Expected silence after a line. Call it for all lines in order: a step's window opens
        after its last call."""
        values = _pairs(line)
        if line.startswith("tries "):
            self._tries = float(values["count"])
        if "id" in values:
            longest_ns = float(values.get("max_ns", values.get("min_ns", 0.0)))
            once_ns = float(values.get("duration_ns", 0.0)) + float(values.get("tail_ns", 0.0))
            once_ns += float(values.get("bit_ns", 0.0)) * len(values.get("bits", ""))
            self._allowed_s = (self._tries * longest_ns + once_ns) / 1e9
            self._guess_s = self._share_s * max(1.0, float(values.get("calls", 1.0)))
        expected_s = max(self._allowed_s, self._guess_s)
        return Silence(
            quiet_s=_QUIET_S + _QUIET_EXPECTATIONS * expected_s,
            limit_s=self._deadline_s + self._allowed_s + _MOST_GUESSES * self._guess_s,
        )


@dataclass
class _Pulse:
    """Calls ``wait`` about twice a second, however often it is called itself."""

    wait: Wait

    def __post_init__(self) -> None:
        self._started = self._told = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._told >= _PULSE_S:
            self._told = now
            self.wait(now - self._started)


def _pairs(line: str) -> dict[str, str]:
    """The ``key=value`` words of a line."""
    return dict(word.split("=", 1) for word in line.split(" ") if "=" in word)


def _body(plan: str) -> list[str]:
    """The lines of a plan without the first and last, which only delimit the file."""
    return plan.splitlines()[1:-1]


def _records(line: str, answer: str) -> Iterator[str]:
    if answer.partition(" ")[0] in _RECORDS:
        yield answer
    elif line.startswith("scratch "):
        yield "scratch direct=1"  # no cache lies between


def _text(records: Sequence[str]) -> str:
    return "".join(f"{record}\n" for record in records)


def _processor(cpuid: str) -> str:
    value = int(cpuid, 16)
    part = _PARTS.get(value >> 4 & 0xFFF)
    if part is None:
        return f"CPUID {value:08x}"
    return f"{part} r{value >> 20 & 0xF}p{value & 0xF}"


def _short(value: str) -> str:
    return value[:_SHOWN_HASH] if re.fullmatch(r"[0-9a-f]{64}", value) else value

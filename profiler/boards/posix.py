"""A Linux board with the harness on it, reached over a transport that runs commands."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from devices.claims.owner import Owner
from devices.description import DeviceDescription
from devices.documents.disk import names_when_full
from devices.errors import (
    BoardCommandFailed,
    BoardUnreachable,
    JoulewrightError,
    SessionGone,
    SetupMissing,
)
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from devices.profile import BoardIdentity, Build
from profiler.boards.base import BoardFacts, Outcome, RebootError, Wait
from profiler.boards.clock import read_clock
from profiler.boards.pinning import NOT_HELD, Pinning
from profiler.boards.plan_data import NO_DATA, PlanData
from profiler.boards.raw_flash import find_partition
from profiler.boards.run_files import ONLY_NEW, RunFiles, of_boot, transfer_limit_s
from profiler.building.plan_source import plans_source
from profiler.building.toolchain import BuiltHarness, HarnessBuilder
from profiler.meters.base import ClockReading
from profiler.script.writer import workspace_query
from profiler.transports.base import DetachedCommand, Transport
from profiler.transports.shell import quoted

_BUILD_TIMEOUT_S = 600.0
_COMMAND_TIMEOUT_S = 30.0
_TRANSFER_TIMEOUT_S = 120.0
_SALVAGE_TIMEOUT_S = 10.0

# A single execution of the largest operations takes minutes on the slowest boards. If no window has
# ended for so long, or for this multiple of the time expected for all of them, something hangs.
_STALL_S, _STALLED = 900.0, 2.0
_STALL_CHECK_S = 30.0
_SLOWEST_POLL_S = 5.0
# Share of the interval between two polls after which a run is polled that may have ended by then.
_FIRST_POLL = 0.2

# Share of the board's free memory that measuring may take.
_ARENA_SHARE = 0.5

_PLAN, _DATA, _KERNELS = "plan", "data", "kernels"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

# Prints the absolute path of $1, which may begin with ~.
_MAKE_DIRECTORY = """\
case $1 in "~" | "~/"*) set -- "$HOME${1#"~"}" ;; esac
mkdir -p -- "$1" && cd -- "$1" || exit
[ -w . ] || { echo "$PWD cannot be written" >&2; exit 1; }
pwd
"""

# Assumed where a Cortex-A board does not report its caches; an upper limit.
_ASSUMED_CACHE_BYTES = 8 << 20


class PosixBoard:
    """Implements :class:`~profiler.boards.base.Board` for Linux. The transport is connected between
    entering and leaving.

    Args:
        description: The board.
        transport: The way to the board.
        poll_interval_s: Time between two polls of a board that is measuring.
        plans: Execution plans that the harness can replay.
        alone: Whether to keep out programs of other users and other computers.
    """

    facts: BoardFacts
    build: Build

    def __init__(
        self,
        description: DeviceDescription,
        transport: Transport,
        poll_interval_s: float,
        plans: Sequence[ExecutionPlan] = (),
        *,
        alone: bool = True,
    ) -> None:
        self._description = description
        self._alone = alone
        self.transport = transport
        self._poll_interval_s = poll_interval_s
        self._plans = plans
        self._builder: HarnessBuilder | None = None
        self._harness: BuiltHarness | None = None
        self._storage_directory: str | None = None
        self._data_sha256: str | None = None
        self._pinning: Pinning | None = None

    @property
    def name(self) -> str:
        return self.transport.name

    @property
    def storage_place(self) -> str | None:
        """End of a plan's ``scratch`` line. A raw flash partition is looked up only on this call,
        so a board without it can be used for everything else."""
        storage = self._description.storage
        if storage is not None and storage.mtd_partition is not None:
            return find_partition(self.transport, storage, timeout_s=_COMMAND_TIMEOUT_S)
        return None if self._storage_directory is None else f"directory={self._storage_directory}"

    def prepare(self, progress: Callable[[str], None]) -> None:
        """Build the harness and read the board's facts. After a reboot the private directory is
        new, or the claim is gone, which may lie elsewhere."""
        self._claim()
        self._storage_directory = self._make_storage_directory()  # before a minute of compiling
        self._data_sha256 = None
        self._forget_build()
        self._builder = HarnessBuilder(self.transport, self._description.toolchain)
        self.install(self._plans, progress)
        self.build = self._known_harness.record
        self._description = self._description.with_matmul(self.build.matmul)  # after a reboot, too
        if self._description.conditions is not None:
            self._pinning = Pinning(self.transport, self._description.conditions)
            self._pinning.hold()
        self.facts = self._ask()

    def install(self, plans: Sequence[ExecutionPlan], progress: Callable[[str], None]) -> None:
        """Make these plans available for replay. Compiled objects are kept and only linked
        again."""
        if self._builder is None:
            raise ValueError("prepare() comes first")
        source = plans_source(plans, self._description.storage) if plans else None
        self._harness = self._builder.build(source, timeout_s=_BUILD_TIMEOUT_S, progress=progress)
        self._plans = plans

    def workspace_bytes(self, specs: Sequence[OpSpec]) -> dict[OpSpec, int]:
        self._put(_KERNELS, workspace_query(specs).encode())
        answer = self._run_harness("workspace", _KERNELS).split()
        return dict(zip(specs, map(int, answer), strict=True))

    def throttled(self) -> int | None:
        command = self.facts.throttle_command
        if command is None:
            return None
        asked = [command, "get_throttled"]
        answer = self.transport.run(asked, timeout_s=_COMMAND_TIMEOUT_S, check=False)
        # Without access to the firmware it prints an error, and does not always exit with one.
        found = re.fullmatch("throttled=0x([0-9a-fA-F]+)", answer.stdout.strip())
        return None if found is None else int(found[1], 16)

    def temperature_c(self) -> float | None:
        temperature_mc = int(self._run_harness("temperature"))
        return temperature_mc / 1e3 if temperature_mc else None

    def clock(self) -> ClockReading:
        return read_clock(lambda: int(self._run_harness("clock")))

    def run_plan(
        self, plan: str, *, expected_s: float, wait: Wait, data: PlanData = NO_DATA
    ) -> Outcome:
        """Run a plan detached, with only an occasional poll. A connection that is lost and comes
        back meanwhile makes no difference.

        Records of another boot than that in which the board was prepared are left out. A board that
        has lost its claim is claimed again before the plan starts.
        """
        self._put(_PLAN, plan.encode())
        moves_data = any(line.startswith(("load ", "dump ")) for line in plan.splitlines())
        written = RunFiles.anew(self.transport, moves_data)
        files = [_PLAN, written.results, written.samples]
        if written.dumped is not None:
            self._put_data(data)
            files += [_DATA, written.dumped]
        self._claim()  # as long as this computer slept, other programs could claim the board
        if self._pinning is not None:
            self._pinning.hold()  # the transfers may have taken longer than its guard waits
        command: DetachedCommand | None = None
        try:
            command = self.transport.start(
                ["sh", "-c", ONLY_NEW, "sh", self._known_harness.path, "run", *files],
                timeout_s=_COMMAND_TIMEOUT_S,
                environment=self._known_harness.environment,
            )
            self._wait(command, written, expected_s, wait)
            hindrance = self._hindrance()
            fetched = dict(written.fetch(_TRANSFER_TIMEOUT_S))
            outcome = replace(written.outcome(fetched), hindrance=hindrance)
            return of_boot(outcome, self.facts.boot_id, self.name)
        except (BoardUnreachable, KeyboardInterrupt) as cut:
            is_gone = isinstance(cut, BoardUnreachable)
            return Outcome("", "", cut) if is_gone else self._salvage(command, written, cut)
        except JoulewrightError as cut:
            if self._has_rebooted():
                reboot = RebootError(
                    f"{self.name}: the board rebooted while it was measuring",
                    remedy="check its power supply and its temperature",
                )
                reboot.__cause__ = cut
                return Outcome("", "", reboot)
            return self._salvage(command, written, cut)

    def close(self) -> None:
        try:
            self._forget_build()
        finally:
            self.transport.close()

    def __enter__(self) -> Self:
        self.transport.connect()
        try:
            self._claim()
        except BaseException:
            self.transport.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _claim(self) -> None:
        """Claim the board, if it is to be used alone. Raises :class:`~devices.errors.BoardInUse` if
        another program has claimed it."""
        if self._alone:
            self.transport.claim(Owner.this_process())

    def _forget_build(self) -> None:
        if self._builder is not None:
            self._builder.close()
            self._builder = None

    @property
    def _known_harness(self) -> BuiltHarness:
        if self._harness is None:
            raise ValueError("prepare() comes first")
        return self._harness

    def _make_storage_directory(self) -> str | None:
        """The description's storage directory as an absolute path; created if necessary."""
        storage = self._description.storage
        if storage is None or storage.path is None:
            return None
        made = self.transport.run(
            ["sh", "-c", _MAKE_DIRECTORY, "sh", storage.path],
            timeout_s=_COMMAND_TIMEOUT_S,
            check=False,
        )
        if made.exit_code != 0:
            raise SetupMissing(
                f"{self.name}: storage.path {storage.path} of {self._description.name} cannot be"
                f" used{quoted(made.stderr)}",
                remedy="state a directory that can be written as storage.path of the description",
            )
        return made.stdout.rstrip("\n")

    def _ask(self) -> BoardFacts:
        storage = [] if self._storage_directory is None else ["--storage", self._storage_directory]
        lines = self._run_harness("describe", *storage).splitlines()
        reply = dict(line.partition("=")[::2] for line in lines)
        numbers = {key: int(value) for key, value in reply.items() if value.isdigit()}
        memory_bytes = numbers["memory_bytes"]
        available = numbers.get("memory_available_bytes", memory_bytes)
        described = self._description.memory
        if described is not None:
            available = min(available, described.usable_bytes)
        processor = self._description.processor
        cache_bytes = numbers.get("last_level_cache_bytes")
        handover_ns = numbers.get("handover_ns")
        if processor is not None and processor.data_cache_bytes is not None:
            cache_bytes = processor.data_cache_bytes
        return BoardFacts(
            identity=BoardIdentity(
                model=reply.get("model", self._description.model),
                memory_bytes=memory_bytes,
                serial=reply.get("serial"),
                kernel=reply.get("kernel"),
                cpu=reply.get("cpu"),
                cores=numbers.get("cores"),
                governor=reply.get("governor"),
                cpu_frequency_hz=numbers.get("frequency_hz"),
                last_level_cache_bytes=cache_bytes,
                storage_card=reply.get("storage_card"),
            ),
            boot_id=reply.get("boot_id", ""),
            last_level_cache_bytes=_ASSUMED_CACHE_BYTES if cache_bytes is None else cache_bytes,
            is_cache_known=cache_bytes is not None,
            available_bytes=int(available * _ARENA_SHARE),
            throttle_command=reply.get("vcgencmd"),
            handover_s=None if handover_ns is None else handover_ns * 1e-9,
            matmul_comparison=self._known_harness.matmul_comparison,
        )

    def _run_harness(self, *arguments: str) -> str:
        return self.transport.run(
            [self._known_harness.path, *arguments],
            timeout_s=_COMMAND_TIMEOUT_S,
            environment=self._known_harness.environment,
        ).stdout

    def _wait(
        self, command: DetachedCommand, written: RunFiles, expected_s: float, wait: Wait
    ) -> None:
        """Wait until the harness has ended successfully. Raises :class:`BoardCommandFailed` if it
        ends otherwise or hangs."""
        interval_s = min(max(self._poll_interval_s, expected_s / 20), _SLOWEST_POLL_S)
        if self._description.emulator is not None:
            interval_s = _SLOWEST_POLL_S  # an emulated board's clock is slow
        # Many runs take less than an interval: the first polls are earlier.
        gap_s = min(max(_FIRST_POLL * interval_s, expected_s), interval_s)
        started = time.monotonic()
        next_poll = started + gap_s
        watch = _StallWatch(max(_STALL_S, _STALLED * expected_s), started)
        while True:
            time.sleep(min(self._poll_interval_s, max(0.0, next_poll - time.monotonic())))
            now = time.monotonic()
            wait(now - started)
            if now < next_poll:
                continue
            status = command.poll(timeout_s=_COMMAND_TIMEOUT_S)
            if status.exit_code == 0:
                return
            if status.exit_code is not None:
                _, errors = command.output(timeout_s=_COMMAND_TIMEOUT_S)
                raise BoardCommandFailed(
                    f"{self.name}: the harness ended with code {status.exit_code}:"
                    f" {errors.strip() or 'no message'}"
                )
            gap_s = min(2 * gap_s, interval_s)
            next_poll = now + gap_s
            if watch.is_due(now):
                watch.look(now, written.results_bytes(), self.name)

    def _hindrance(self) -> str | None:
        """Why nothing that was measured so far counts; None if it does."""
        return None if self._pinning is None or self._pinning.is_held else NOT_HELD

    def _salvage(
        self, command: DetachedCommand | None, written: RunFiles, cut: BaseException
    ) -> Outcome:
        """What a run has written until it was cut; another Ctrl-C ends the transfer."""
        found: dict[str, bytes] = {}
        hindrance = None
        if command is not None:
            with suppress(JoulewrightError, KeyboardInterrupt):
                command.stop(timeout_s=_SALVAGE_TIMEOUT_S)
                hindrance = self._hindrance()
                for name, content in written.fetch(_SALVAGE_TIMEOUT_S):
                    found |= {name: content}
        outcome = replace(written.outcome(found, cut), hindrance=hindrance)
        return of_boot(outcome, self.facts.boot_id, self.name)

    def _put_data(self, data: PlanData) -> None:
        """Put a plan's data, unless the board has them from an earlier plan."""
        if self._data_sha256 != data.sha256:
            self._data_sha256 = None
            self._put(_DATA, *data.parts)
            self._data_sha256 = data.sha256

    def _put(self, name: str, *content: bytes | memoryview) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            local = Path(scratch) / name
            with names_when_full(local), local.open("wb") as file:
                file.writelines(content)
            size_bytes = local.stat().st_size
            limit_s = transfer_limit_s(size_bytes, _TRANSFER_TIMEOUT_S)
            self.transport.put(local, name, timeout_s=limit_s)

    def _has_rebooted(self) -> bool:
        """Whether the board has rebooted since it was asked about itself.

        A reboot may have removed the session's directory; a new one is then made. A board that is
        too busy to answer is taken not to have: what the program has left can be read later.
        """
        try:
            return self._read_boot_id() != self.facts.boot_id
        except SessionGone:
            self.transport.close()
            self.transport.connect()
            self._data_sha256 = None
            return self._read_boot_id() != self.facts.boot_id
        except BoardCommandFailed:
            return False

    def _read_boot_id(self) -> str:
        return self.transport.run(["cat", _BOOT_ID], timeout_s=_COMMAND_TIMEOUT_S).stdout.strip()


@dataclass
class _StallWatch:
    """Watches whether records still arrive, each within ``longest_s``."""

    longest_s: float
    grown_at: float
    looked_at: float = 0.0
    size_bytes: int = -1

    def is_due(self, now: float) -> bool:
        return now - max(self.looked_at, self.grown_at) > _STALL_CHECK_S

    def look(self, now: float, size_bytes: int, board: str) -> None:
        self.looked_at = now
        if size_bytes != self.size_bytes:
            self.size_bytes = size_bytes
            self.grown_at = now
        elif now - self.grown_at > self.longest_s:
            minutes = self.longest_s / 60
            raise BoardCommandFailed(
                f"{board}: no window has ended for {minutes:.0f} minutes; the harness hangs"
            )

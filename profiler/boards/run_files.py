"""What one run of the harness writes on a Linux board, and how it is fetched."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from profiler.boards.base import Outcome, RebootError
from profiler.script.records import boot_of
from profiler.transports.base import Transport

# The rate of the slowest links: a replay transfers as much data as the network has.
_SLOWEST_BYTES_PER_S = 200e3
_SIZES_TIMEOUT_S = 30.0

# Prints the bytes of each file; 0 if there is none yet.
_SIZES = 'for file; do if [ -e "$file" ]; then wc -c <"$file"; else echo 0; fi; done'

ONLY_NEW = 'rm -f results.* samples.* dumped.*; exec "$@"'
"""Script that removes what earlier runs have left, and then executes a command."""


@dataclass(frozen=True)
class RunFiles:
    """Files that one run writes, under names that no other run has.

    The harness creates its files only once it has its memory. Under fixed names, a run that ended
    before would have the records of the run before it.
    """

    transport: Transport
    results: str
    samples: str
    dumped: str | None

    @classmethod
    def anew(cls, transport: Transport, moves_data: bool) -> Self:
        """Names for a run, which also writes data if it ``moves_data``."""
        run = secrets.token_hex(4)
        dumped = f"dumped.{run}" if moves_data else None
        return cls(transport, f"results.{run}", f"samples.{run}", dumped)

    def results_bytes(self) -> int:
        """Bytes of the records so far."""
        (size_bytes,) = self._sizes(self.results)
        return size_bytes

    def fetch(self, least_s: float) -> Iterator[tuple[str, bytes]]:
        """Fetch file by file; each has ``least_s``, and longer the larger it is."""
        names = [name for name in (self.results, self.samples, self.dumped) if name is not None]
        for name, size_bytes in zip(names, self._sizes(*names), strict=True):
            with tempfile.TemporaryDirectory() as scratch:
                local = Path(scratch) / name
                limit_s = transfer_limit_s(size_bytes, least_s)
                self.transport.get(name, local, timeout_s=limit_s)
                yield name, local.read_bytes()

    def outcome(self, fetched: Mapping[str, bytes], cut: BaseException | None = None) -> Outcome:
        """The outcome of the run, from the files that could be fetched."""
        return Outcome(
            results=fetched.get(self.results, b"").decode("ascii"),
            samples=fetched.get(self.samples, b"").decode("ascii"),
            cut=cut,
            dumped=b"" if self.dumped is None else fetched.get(self.dumped, b""),
        )

    def _sizes(self, *names: str) -> list[int]:
        words = ["sh", "-c", _SIZES, "sh", *names]
        answer = self.transport.run(words, timeout_s=_SIZES_TIMEOUT_S)
        return [int(line) for line in answer.stdout.split()]


def of_boot(outcome: Outcome, boot_id: str, board: str) -> Outcome:
    """The outcome, without its records if they are of another boot than ``boot_id``.

    After a boot, sensors may have other numbers, a governor that somebody set is gone, and storage
    may not be mounted: no time and no energy counts. Values do, which are the same in any boot.
    The run is then cut by a :class:`RebootError`, unless something else has cut it. ``board`` is
    the board's name in messages.
    """
    if boot_of(outcome.results) in (None, boot_id):
        return outcome
    reboot = RebootError(
        f"{board}: the board rebooted between two runs",
        remedy="check its power supply and its temperature",
    )
    return replace(outcome, results="", samples="", cut=outcome.cut or reboot)


def transfer_limit_s(size_bytes: int, least_s: float) -> float:
    """Time limit of a transfer over the slowest links."""
    return least_s + size_bytes / _SLOWEST_BYTES_PER_S

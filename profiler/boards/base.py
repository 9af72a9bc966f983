"""A board with the harness on it, however it is reached: asked about itself, given plans, relieved
of its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from devices.errors import MeasurementInvalid
from devices.operation import OpSpec
from devices.profile import BoardIdentity, Build, MatmulComparison
from profiler.meters.base import ClockReading

Wait: TypeAlias = Callable[[float], None]
"""Told, about twice a second, how many seconds the plan has been running."""


class RebootError(MeasurementInvalid):
    """The board has started anew while it was measuring."""


@dataclass(frozen=True)
class BoardFacts:
    """What the board says about itself. ``throttle_command`` is Raspberry Pi's, where there is
    one; ``is_cache_known`` is False where ``last_level_cache_bytes`` is an assumption.
    ``available_bytes`` is memory that is free for measuring. ``matmul_comparison`` is what decided
    between two ways of computing matrix products, where that was left to the board."""

    identity: BoardIdentity
    boot_id: str
    last_level_cache_bytes: int
    is_cache_known: bool
    available_bytes: int
    throttle_command: str | None = None
    matmul_comparison: MatmulComparison | None = None


@dataclass(frozen=True)
class Outcome:
    """What a plan left: the text of its records and samples, what ended it before its time, if
    something did, and the bytes that its ``dump`` lines took from the board, one behind the
    other."""

    results: str
    samples: str
    cut: BaseException | None = None
    dumped: bytes = b""


class Board(Protocol):
    """Entering connects, leaving closes, also after a failure. ``facts``, ``build`` and
    ``storage_place`` are there once ``prepare`` has been called.

    All methods raise :class:`~devices.errors.BoardUnreachable` when the board cannot be reached
    before the transport's deadline.
    """

    facts: BoardFacts
    build: Build

    @property
    def name(self) -> str:
        """How messages call the board."""
        ...

    @property
    def storage_place(self) -> str | None:
        """What a plan's ``scratch`` line ends with: which stretch of which storage is overwritten.
        Raises :class:`~devices.errors.RequestRefused` where that must not be."""
        ...

    def prepare(self, progress: Callable[[str], None]) -> None:
        """Bring the harness to the board, or check the one that is there, and ask the board about
        itself. Called again after a reboot."""
        ...

    def workspace_bytes(self, specs: Sequence[OpSpec]) -> dict[OpSpec, int]:
        """What the kernels of these operations need for themselves."""
        ...

    def throttled(self) -> int | None:
        """Raspberry Pi's bits; None on other boards."""
        ...

    def temperature_c(self) -> float | None:
        """Of the hottest part; None where the board tells none."""
        ...

    def clock(self) -> ClockReading:
        """What the board's clock says, the one that records are on."""
        ...

    def run_plan(self, plan: str, *, expected_s: float, wait: Wait, data: bytes = b"") -> Outcome:
        """Run a plan while the board is left in peace. ``data`` is what its ``load`` lines bring
        to the board.

        Raises :class:`RebootError`. Whatever else ends the plan early (Ctrl-C too) is returned in
        the outcome, with the records that were finished.
        """
        ...

    def close(self) -> None:
        """Leave nothing running on the board. Never raises because it is gone."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

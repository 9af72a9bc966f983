"""Protocol of a board with the harness on it: its facts, the plans that it runs, their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from devices.errors import MeasurementInvalid
from devices.operation import OpSpec
from devices.profile import BoardIdentity, Build, MatmulComparison
from profiler.boards.plan_data import NO_DATA, PlanData
from profiler.meters.base import ClockReading

Wait: TypeAlias = Callable[[float], None]
"""Called about twice a second with the seconds for which the plan has been running."""


class RebootError(MeasurementInvalid):
    """The board restarted while it was measuring, or since it was prepared."""


@dataclass(frozen=True)
class BoardFacts:
    """What the board reports about itself.

    ``throttle_command`` is Raspberry Pi's, None on other boards. ``is_cache_known`` is False where
    ``last_level_cache_bytes`` is an assumption. ``available_bytes`` is memory that is free for
    measuring. ``handover_s`` is the time of handing a transfer of nothing to the thread that
    carries out transfers beside ops, None where there is none. ``matmul_comparison`` decided
    between two ways of computing matrix products, where that was left to the board.
    """

    identity: BoardIdentity
    boot_id: str
    last_level_cache_bytes: int
    is_cache_known: bool
    available_bytes: int
    throttle_command: str | None = None
    handover_s: float | None = None
    matmul_comparison: MatmulComparison | None = None


@dataclass(frozen=True)
class Outcome:
    """Results of a plan: its records and samples, and what ended it early.

    ``dumped`` holds the bytes that the plan's ``dump`` lines took from the board, in their order.
    ``hindrance`` says why none of its times and joules counts.
    """

    results: str
    samples: str
    cut: BaseException | None = None
    dumped: bytes = b""
    hindrance: str | None = None


class Board(Protocol):
    """A board with the harness on it. Entering connects; leaving closes, also after a failure.

    ``facts``, ``build`` and ``storage_place`` are valid after ``prepare``. All methods raise
    :class:`~devices.errors.BoardUnreachable` when the board cannot be reached before the
    transport's deadline.
    """

    facts: BoardFacts
    build: Build

    @property
    def name(self) -> str:
        """Name of the board in messages."""
        ...

    @property
    def storage_place(self) -> str | None:
        """End of a plan's ``scratch`` line: which stretch of which storage is overwritten.

        Raises :class:`~devices.errors.RequestRefused` where it must not be overwritten.
        """
        ...

    def prepare(self, progress: Callable[[str], None]) -> None:
        """Install the harness or check the installed one, and read the board's facts. Called again
        after a reboot."""
        ...

    def workspace_bytes(self, specs: Sequence[OpSpec]) -> dict[OpSpec, int]:
        """Workspace that the kernels of these operations need."""
        ...

    def throttled(self) -> int | None:
        """Raspberry Pi's throttling bits; None where the board does not report them."""
        ...

    def temperature_c(self) -> float | None:
        """Temperature of the hottest part; None where the board reports none."""
        ...

    def clock(self) -> ClockReading:
        """Reading of the board's clock, which records use too."""
        ...

    def run_plan(
        self, plan: str, *, expected_s: float, wait: Wait, data: PlanData = NO_DATA
    ) -> Outcome:
        """Run a plan, with as little traffic to the board as possible.

        Args:
            plan: Text of the plan.
            expected_s: Expected duration.
            wait: Called about twice a second meanwhile.
            data: Bytes that the plan's ``load`` lines write to the board.

        Raises:
            BoardInUse: Another program has claimed the board since.

        Returns:
            What the plan left. Whatever ends it early (also Ctrl-C, or a :class:`RebootError`) is
                in ``cut``, beside the records that were finished.
        """
        ...

    def close(self) -> None:
        """Leave nothing running on the board. Does not raise if the board is lost."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

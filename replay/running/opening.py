"""Open a board with a meter and with execution plans in its program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeAlias

from devices.description import DeviceDescription
from devices.errors import RequestRefused
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from profiler.boards.base import Board
from profiler.boards.posix import PosixBoard
from profiler.building.store_layout import store_layout
from profiler.opening.boards import alone_with, open_board
from profiler.opening.meters import described_meter
from replay.running.session import Progress, ReplaySession

MakePlans: TypeAlias = Callable[[Mapping[OpSpec, int]], Sequence[ExecutionPlan]]
"""Makes the plans to replay from the workspace that the board's kernels need, in bytes."""

_POLL_INTERVAL_S = 0.5
_SHOWN_HASH = 12


@contextmanager
def open_replay(
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    make_plans: MakePlans,
    progress: Progress,
    *,
    kernels_sha256: str | None = None,
    matmul: str | None = None,
    alone: bool = True,
    poll_interval_s: float = _POLL_INTERVAL_S,
) -> Iterator[ReplaySession]:
    """Open a board with execution plans in its program.

    A Linux board compiles its kernels once and reports their workspace; then the plans are linked
    to them. For a microcontroller, this computer's twin of it (:mod:`replay.running.twin`) reports
    the workspace, so that the board's flash is written only once, with the plans in it; the board
    then confirms the sizes.

    Args:
        description: the board and its meter.
        specs: the operations whose workspace is needed.
        make_plans: makes the plans, from the workspace of ``specs`` in bytes.
        progress: called with one line for each phase.
        kernels_sha256: hash of the profiled kernels; None accepts any kernels.
        matmul: how the profiled kernels compute matrix products. It holds where the description
            does not say.
        alone: False for a Linux board on which only values count; others may use it too.
        poll_interval_s: time between two polls of the board.

    Yields:
        The session, which runs the plans.

    Raises:
        RequestRefused: the board has other kernels than the profile, or a plan pages and the board
            has no storage for it.
        BoardInUse: another program uses the board; its meter was not touched.
        JoulewrightError: opening the board or the meter failed.
    """
    description = description.with_matmul(matmul)
    with ExitStack() as stack:
        if alone and description.emulator is None:  # an emulated one is claimed when it has started
            stack.enter_context(alone_with(description))
        meter_for = stack.enter_context(described_meter(description))

        def checked_plans(workspace_bytes: Mapping[OpSpec, int]) -> Sequence[ExecutionPlan]:
            plans = make_plans(workspace_bytes)
            for plan in plans:
                _require_storage(description, plan)
            return plans

        def require_kernels(board: Board) -> None:
            if kernels_sha256 not in {None, board.build.kernels_sha256}:
                built, profiled = board.build.kernels_sha256, str(kernels_sha256)
                raise RequestRefused(
                    f"{board.name}: its kernels are {built[:_SHOWN_HASH]}, those of the profile"
                    f" were {profiled[:_SHOWN_HASH]}: sources or flags have changed, so that the"
                    " costs are unknown",
                    remedy="profile the board again, and solve again",
                )

        opened = (
            partial(_open_linux, alone=alone) if description.firmware is None else _open_firmware
        )
        board, plans = stack.enter_context(
            opened(description, specs, checked_plans, require_kernels, progress, poll_interval_s)
        )
        session = ReplaySession(description, board, meter_for(board), plans, progress)
        stack.callback(session.tidy)
        yield session


@contextmanager
def _open_linux(
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    make_plans: MakePlans,
    check: Callable[[Board], None],
    progress: Progress,
    poll_interval_s: float,
    *,
    alone: bool,
) -> Iterator[tuple[Board, Sequence[ExecutionPlan]]]:
    with open_board(description, poll_interval_s, progress, alone=alone) as board:
        assert isinstance(board, PosixBoard)
        board.prepare(progress)
        check(board)
        plans = make_plans(board.workspace_bytes(specs))
        board.install(plans, progress)
        yield board, plans


@contextmanager
def _open_firmware(
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    make_plans: MakePlans,
    check: Callable[[Board], None],
    progress: Progress,
    poll_interval_s: float,
) -> Iterator[tuple[Board, Sequence[ExecutionPlan]]]:
    from replay.running.twin import host_twin

    with open_board(host_twin(description), poll_interval_s, progress, alone=False) as twin:
        twin.prepare(progress)
        workspace_bytes = twin.workspace_bytes(specs)
    plans = make_plans(workspace_bytes)
    with open_board(description, poll_interval_s, progress, plans) as board:
        board.prepare(progress)
        check(board)
        used = list(dict.fromkeys(op.spec for plan in plans for op in plan.computes))
        wrong = [
            f"{spec} needs {size} bytes of workspace, the plan has {workspace_bytes[spec]}"
            for spec, size in board.workspace_bytes(used).items()
            if size != workspace_bytes[spec]
        ]
        if wrong:
            raise RequestRefused(f"{board.name}: the plans do not fit its kernels: {wrong[0]}")
        yield board, plans


def _require_storage(description: DeviceDescription, plan: ExecutionPlan) -> None:
    storage = description.storage
    if not plan.pages:
        return
    if storage is None:
        raise RequestRefused(
            f"{description.name}: {plan.name} pages, and the description has no storage",
            remedy="describe the board's storage, or solve without paging",
        )
    if storage.mtd_partition is not None:
        raise RequestRefused(
            f"{description.name}: replays on Linux page to files, not to the raw flash partition"
            f" {storage.mtd_partition!r}",
            remedy="describe storage.path on a file system, or solve without paging",
        )
    least = store_layout(plan, storage).least_scratch_bytes
    if storage.scratch_bytes is not None and storage.scratch_bytes < least:
        raise RequestRefused(
            f"{description.name}: two steps of {plan.name} take {least} bytes of storage, its"
            f" scratch_bytes are {storage.scratch_bytes}",
            remedy="increase scratch_bytes in the description",
        )

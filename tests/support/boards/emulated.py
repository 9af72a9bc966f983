"""Fixtures for tests with emulated boards.

Firmware and images are built once for all tests and kept for the next run. Running boards belong to
the test run alone; the run fails if one is left at its end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devices.description import DeviceDescription
from devices.user_cache import user_cache
from profiler.lab.monitor import Monitor
from profiler.lab.process import Process
from profiler.lab.qemu import make_guest
from profiler.lab.running import RunningBoard, start_own
from tests.support.boards.processes import SESSION_VARIABLE, VARIABLE, marked, new_mark
from tests.support.progress import ignore

if TYPE_CHECKING:
    from tests.support.boards.ground_truth import Harness

_BUILDS = ("firmware", "firmware-objects", "objects", "lab")
_MONITOR_LIMIT_S = 60.0
_ENDING_S = 10.0
_PATIENCE_S = 60.0


@pytest.fixture(scope="session", autouse=True)
def no_emulator_is_left() -> Iterator[None]:
    """Fail the run if an emulator that a test started still runs at its end, and end it."""
    mark = new_mark()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SESSION_VARIABLE, mark)
        yield
    left = {pid: name for pid, name in _emulators(mark) if not _ends_by_itself(pid)}
    for pid in left:
        with suppress(ProcessLookupError):
            Process.of(pid).end(patience_s=_PATIENCE_S)
    assert left == {}


def _emulators(mark: str) -> Iterator[tuple[int, str]]:
    for pid in marked(mark, SESSION_VARIABLE):
        try:
            program = Path(f"/proc/{pid}/exe").readlink().name
        except OSError:  # the process has ended
            continue
        if program.startswith("qemu-system-"):
            yield pid, program


def _ends_by_itself(pid: int) -> bool:
    """Whether the process ends soon, as after a request to stop: on a busy computer, too."""
    try:
        return Process.of(pid).wait(timeout_s=_ENDING_S)
    except ProcessLookupError:
        return True


@contextmanager
def _own_cache(directory: Path) -> Iterator[None]:
    """Use an empty cache directory, so that boards started by others, as by ``lab up``, are unseen.

    Builds are shared with everybody.
    """
    kept = user_cache()
    (directory / kept.name).mkdir()
    for name in _BUILDS:
        (kept / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        (directory / kept.name / name).symlink_to((kept / name).resolve())
    for library in kept.glob("*.so"):  # of the solver
        (directory / kept.name / library.name).symlink_to(library.resolve())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(directory))
        yield


@pytest.fixture(scope="module")
def own_boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the boards of other modules and of the user; builds are shared."""
    with _own_cache(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="session")
def linux_harness(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """The program for the emulated Linux board, compiled once."""
    from tests.support.boards.ground_truth import build_harness

    return build_harness(tmp_path_factory.mktemp("harness"))


class SharedBoards:
    """Boards that take long to boot: one per description, shared by all modules.

    A board is halted while no test uses it, since an idle one keeps much of a processor busy. Its
    emulator is stopped, too: with a halted board, some still take 5 to 20 % of a processor.
    """

    def __init__(
        self, session: pytest.Session, directories: pytest.TempPathFactory, stack: ExitStack
    ) -> None:
        self._session = session
        self._directories = directories
        self._stack = stack
        self._halted: dict[str, RunningBoard] = {}

    @contextmanager
    def lent(self, description: DeviceDescription) -> Iterator[RunningBoard]:
        """Lend a board to a test, which returns it as it was.

        The board is stopped, not lent again, if a test or its clean-up has failed meanwhile.
        """
        key = description.model_dump_json()
        board = self._halted.pop(key, None)
        if board is None or not board.is_alive:
            board = self._boot(description)
        else:
            _go_on(board)
        failed_before = self._session.testsfailed
        is_as_it_was = False
        try:
            yield board
            is_as_it_was = self._session.testsfailed == failed_before and board.is_alive
        finally:
            if is_as_it_was:
                _halt(board)
                self._halted[key] = board
            else:
                board.stop()

    def _boot(self, description: DeviceDescription) -> RunningBoard:
        directory = self._directories.mktemp("cache")
        with _own_cache(directory), pytest.MonkeyPatch.context() as patch:
            patch.delenv(VARIABLE, raising=False)  # the board outlives the test that starts it
            board = start_own(make_guest(description, ignore), ignore)
        self._stack.callback(_end, board)
        return board


def _halt(board: RunningBoard) -> None:
    _order(board, "stop")  # its clock, too
    os.kill(board.pid, signal.SIGSTOP)


def _go_on(board: RunningBoard) -> None:
    os.kill(board.pid, signal.SIGCONT)
    _order(board, "cont")


def _end(board: RunningBoard) -> None:
    if board.is_alive:
        os.kill(board.pid, signal.SIGCONT)
    board.stop()


def _order(board: RunningBoard, command: str) -> None:
    with Monitor(board._directory, timeout_s=_MONITOR_LIMIT_S) as monitor:
        monitor.execute(command)


@pytest.fixture(scope="session")
def shared_boards(
    request: pytest.FixtureRequest,
    no_emulator_is_left: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SharedBoards]:
    """Emulated boards shared by all modules of the test run."""
    with ExitStack() as stack:
        yield SharedBoards(request.session, tmp_path_factory, stack)

"""Ctrl-C, SIGTERM and SIGHUP: the best result so far is kept, and nothing is left running."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from signal import Signals
from types import SimpleNamespace

import pytest

from commands.stopping import StopSignals, stop_requested
from devices.documents.document import dump_yaml, read_json
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Budget, Schedule
from solver.referee.referee import verify
from tests.support.boards.measuring import describe
from tests.support.boards.processes import (
    VARIABLE,
    eventually,
    marked,
    new_mark,
    started_as_by_a_shell,
    wait_until,
)
from tests.support.documents import write_json
from tests.support.graphs.graph_examples import hard_problem
from tests.support.graphs.solved import FLAGS, solved
from tests.support.onboard.kernels import KernelLibrary, compile_library
from tests.support.paths import ROOT

# Ample time to compile kernels and harness.
_COMPILING_S = 240.0

STOPS = (Signals.SIGINT, Signals.SIGTERM, Signals.SIGHUP)


# --- the handlers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_interrupts_and_determines_the_exit_code(number: Signals) -> None:
    with StopSignals() as stop:
        assert stop.exit_code is None
        assert not stop_requested()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert stop_requested()
    assert stop.exit_code == 128 + number


def test_a_second_ctrl_c_interrupts_again_and_repeated_requests_to_end_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr("commands.stopping.time", SimpleNamespace(monotonic=lambda: now_s))
    with StopSignals() as stop:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(Signals.SIGHUP)
        for number in STOPS:
            signal.raise_signal(number)
        for _ in range(2):
            now_s += 0.6
            signal.raise_signal(Signals.SIGHUP)
            signal.raise_signal(Signals.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(Signals.SIGINT)
            now_s += 0.4
            signal.raise_signal(Signals.SIGINT)  # a key that is held
    assert stop.exit_code == 128 + Signals.SIGHUP


@pytest.mark.parametrize("is_stopped", [False, True])
def test_signals_after_the_end_of_a_stopped_program_do_not_change_its_exit_code(
    is_stopped: bool,
) -> None:
    before = {number: signal.getsignal(number) for number in STOPS}
    try:
        with StopSignals(ends_program=True), suppress(KeyboardInterrupt):
            if is_stopped:
                signal.raise_signal(Signals.SIGTERM)
        after = {number: signal.getsignal(number) for number in STOPS}
        assert after == (dict.fromkeys(STOPS, signal.SIG_IGN) if is_stopped else before)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(Signals.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with StopSignals() as stop:
            signal.raise_signal(Signals.SIGHUP)
        assert stop.exit_code is None
        assert signal.getsignal(Signals.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(Signals.SIGHUP, before)


def test_handlers_are_restored_and_left_alone_outside_the_main_thread() -> None:
    before = [signal.getsignal(number) for number in STOPS]
    with StopSignals():
        assert [signal.getsignal(number) for number in STOPS] != before
    assert [signal.getsignal(number) for number in STOPS] == before
    seen: list[object] = []

    def open_there() -> None:
        with StopSignals():
            seen.extend(signal.getsignal(number) for number in STOPS)

    thread = threading.Thread(target=open_there)
    thread.start()
    thread.join()
    assert seen == before


# --- solve ----------------------------------------------------------------------------------------


def solving(directory: Path) -> tuple[list[str], CostedGraph, Budget]:
    graph, budget = hard_problem()
    write_json(directory / "hard.json", graph)
    words = ["cli.py", "solve", "--graph", str(directory / "hard.json"), "--gap", "0"]
    words += ["--ram-budget", str(budget.ram_bytes), "--out", str(directory / "best.json")]
    return words, graph, budget


def runs(mark: str, *words: bytes) -> bool:
    """Whether a marked process has all ``words`` in its command."""

    def command(process: int) -> bytes:
        try:
            return Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:  # it has ended
            return b""

    return any(all(word in command(process) for word in words) for process in marked(mark))


def assert_ended(process: subprocess.Popen[str], mark: str, number: Signals, said: str) -> None:
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert "leaked" not in said
    wait_until(lambda: not marked(mark))


def assert_best_so_far(path: Path, graph: CostedGraph, budget: Budget) -> None:
    schedule = read_json(path, Schedule)
    assert (schedule.status, schedule.ended_by) == ("feasible", "interrupted")
    verify(graph, schedule.actions, budget)


@pytest.mark.slow
@pytest.mark.parametrize("number", STOPS)
def test_solve_writes_the_best_schedule_so_far(tmp_path: Path, number: Signals) -> None:
    words, graph, budget = solving(tmp_path)
    pipe = subprocess.PIPE
    with started_as_by_a_shell(*words, stdout=pipe, stderr=pipe) as (process, mark):
        wait_until(lambda: runs(mark, b"engines.worker"))
        os.killpg(process.pid, number)
        _, said = process.communicate(timeout=60)
        assert_ended(process, mark, number, said)
    assert_best_so_far(tmp_path / "best.json", graph, budget)


@pytest.mark.slow
def test_solve_writes_the_best_schedule_however_often_ctrl_c_is_pressed(tmp_path: Path) -> None:
    words, graph, budget = solving(tmp_path)
    pipe, best = subprocess.PIPE, tmp_path / "best.json"
    with started_as_by_a_shell(*words, stdout=pipe, stderr=pipe) as (process, mark):
        wait_until(lambda: runs(mark, b"engines.worker"))
        while not best.exists() and process.poll() is None:
            os.killpg(process.pid, Signals.SIGINT)
            time.sleep(0.05)
        _, said = process.communicate(timeout=60)
        assert_ended(process, mark, Signals.SIGINT, said)
    assert_best_so_far(best, graph, budget)


@pytest.mark.slow
def test_solve_writes_the_best_schedule_when_its_terminal_closes(tmp_path: Path) -> None:
    words, graph, budget = solving(tmp_path)
    mark = new_mark()
    child, terminal = pty.fork()
    if not child:
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, *words], os.environ | {VARIABLE: mark})
    try:
        os.read(terminal, 1)  # progress
        wait_until(lambda: runs(mark, b"engines.worker"))
    finally:
        os.close(terminal)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + Signals.SIGHUP
    wait_until(lambda: not marked(mark))
    assert_best_so_far(tmp_path / "best.json", graph, budget)


# --- profile and run ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a description of this computer and a schedule for it."""
    directory = tmp_path_factory.mktemp("board")
    library = KernelLibrary(compile_library(directory, "in-tree", FLAGS))
    solved(directory, library, "digits", 0.58)
    device = describe(
        nominal_power_w=3.0,
        toolchain={"kind": "native", "compiler": "cc", "flags": FLAGS, "matmul": "in-tree"},
        storage={"medium": "sd", "path": str(directory / "pages"), "page_bytes": 512},
    )
    (directory / "bench.yaml").write_text(dump_yaml(device))
    return directory


def profiling(directory: Path, results: Path) -> list[str]:
    words = ["profile", "--device", str(directory / "bench.yaml"), "--model", "linear"]
    return [*words, "--no-storage", "--blocks", "200", "--results", str(results)]


def running(directory: Path, results: Path) -> list[str]:
    words = ["run", "--device", str(directory / "bench.yaml"), "--results", str(results)]
    return [*words, "--schedule", str(directory / "small.json"), "--steps", "100000"]


@pytest.mark.slow
@pytest.mark.parametrize("number", STOPS)
@pytest.mark.parametrize("words", [profiling, running])
def test_nothing_runs_on_the_board_after_a_signal(
    words: Callable[[Path, Path], list[str]], number: Signals, board: Path, tmp_path: Path
) -> None:
    measuring = ("cli.py", *words(board, tmp_path))
    pipe = subprocess.PIPE
    with started_as_by_a_shell(*measuring, stdout=pipe, stderr=pipe) as (process, mark):
        assert eventually(
            lambda: runs(mark, b"harness", b"\0run\0") or process.poll() is not None, _COMPILING_S
        )
        assert process.poll() is None, process.communicate()
        os.killpg(process.pid, number)
        _, said = process.communicate(timeout=60)
        assert_ended(process, mark, number, said)
    assert "interrupted" in said

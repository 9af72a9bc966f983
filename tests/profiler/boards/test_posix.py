"""Runs of the harness on a Linux board: what is fetched of them, whenever they end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devices.claims.owner import Owner
from devices.errors import BoardCommandFailed, BoardInUse
from profiler.boards.base import Outcome, RebootError
from profiler.boards.posix import PosixBoard
from profiler.transports.local import LocalTransport
from tests.support.boards.measuring import describe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prebuilt")]

PLAN = "joulewright-plan 1\narena bytes=4096\nidle id=0 duration_ns=1000000\nend\n"
TOO_LARGE = f"joulewright-plan 1\narena bytes={1 << 60}\nend\n"


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PosixBoard]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with PosixBoard(describe(), LocalTransport(), 0.05) as board:
        board.prepare(lambda _what: None)
        yield board


def run(board: PosixBoard, plan: str) -> Outcome:
    return board.run_plan(plan, expected_s=0.1, wait=lambda _s: None)


def test_a_run_that_ends_before_it_has_memory_has_no_records_of_an_earlier_one(
    board: PosixBoard,
) -> None:
    first = run(board, PLAN)
    assert first.cut is None
    assert "window id=0" in first.results
    failed = run(board, TOO_LARGE)
    assert isinstance(failed.cut, BoardCommandFailed)
    assert (failed.results, failed.samples) == ("", "")
    again = run(board, PLAN)
    assert again.cut is None
    assert "window id=0" in again.results


def test_files_of_earlier_runs_do_not_pile_up(board: PosixBoard) -> None:
    for _ in range(3):
        run(board, PLAN)
    directory = Path(board.transport.directory)
    assert len(list(directory.glob("results*"))) == 1


def test_records_are_kept_where_the_samples_cannot_be_fetched(
    board: PosixBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(remote: str, local: Path, *, timeout_s: float) -> None:
        if remote.startswith("samples"):
            raise BoardCommandFailed("the time limit has passed")
        fetch(remote, local, timeout_s=timeout_s)

    fetch = board.transport.get
    monkeypatch.setattr(board.transport, "get", get)
    long = PLAN.replace("end\n", "idle id=1 duration_ns=60000000000\nend\n")

    def interrupt_after_the_first_window(_seconds: float) -> None:
        directory = Path(board.transport.directory)
        if any("window id=0" in path.read_text() for path in directory.glob("results*")):
            raise KeyboardInterrupt

    outcome = board.run_plan(long, expected_s=60.0, wait=interrupt_after_the_first_window)
    assert isinstance(outcome.cut, KeyboardInterrupt)
    assert "window id=0" in outcome.results
    assert outcome.samples == ""


def test_records_of_another_boot_are_left_out(board: PosixBoard) -> None:
    facts = board.facts
    board.facts = replace(facts, boot_id="an earlier boot")
    outcome = run(board, PLAN)
    assert isinstance(outcome.cut, RebootError)
    assert "rebooted between two runs" in str(outcome.cut)
    assert (outcome.results, outcome.samples) == ("", "")
    board.facts = facts
    assert run(board, PLAN).cut is None


def test_a_board_that_has_lost_its_claims_in_a_reboot_is_claimed_again(
    board: PosixBoard, tmp_path: Path
) -> None:
    for claim in (tmp_path / "joulewright-boards").iterdir():
        claim.unlink()
    board.prepare(lambda _what: None)
    with LocalTransport() as other, pytest.raises(BoardInUse):
        other.claim(Owner(pid=7, host="elsewhere", command="joulewright run", since="noon"))


def test_a_board_that_was_claimed_by_another_program_runs_no_plan(
    board: PosixBoard, tmp_path: Path
) -> None:
    """As after this computer has slept for more than ten minutes."""
    (claim,) = (tmp_path / "joulewright-boards").iterdir()
    os.utime(claim, (time.time() - 660, time.time() - 660))
    with LocalTransport() as other:
        other.claim(Owner(pid=7, host="elsewhere", command="joulewright run", since="noon"))
        with pytest.raises(BoardInUse, match="process 7 on elsewhere"):
            run(board, PLAN)
    assert run(board, PLAN).cut is None
    (claim,) = (tmp_path / "joulewright-boards").iterdir()
    assert claim.stat().st_mtime > time.time() - 60


def test_throttling_bits_that_cannot_be_read_are_unknown(board: PosixBoard, tmp_path: Path) -> None:
    command = tmp_path / "vcgencmd"
    board.facts = replace(board.facts, throttle_command=str(command))
    for script, bits in (
        ("echo throttled=0x50005", 0x50005),
        ("echo error=1 error_msg='Command not registered'", None),
        ("echo VCHI initialization failed; exit 255", None),
        ("exit 255", None),
    ):
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        assert board.throttled() == bits


def test_a_full_disk_of_this_computer_is_named(board: PosixBoard) -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        board._put("/dev/full", b"a plan")

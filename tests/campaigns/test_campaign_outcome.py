"""What an attempt in another process comes to."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

import pytest

from campaigns.running.outcome import Busy, Failed, Interrupted, Succeeded, attempted
from devices.errors import (
    BoardInUse,
    BoardUnreachable,
    BuildFailed,
    BuildInterrupted,
    EngineFailed,
    InputError,
    MeasurementInvalid,
    RequestRefused,
)
from solver.referee.referee import RefereeError


def fail(error: BaseException) -> NoReturn:
    raise error


def test_a_result_is_returned() -> None:
    assert attempted(max, 2, 3) == Succeeded(3)


@pytest.mark.parametrize(
    ("error", "exit_code", "may_pass"),
    [
        (BoardUnreachable("gone"), 3, True),
        (MeasurementInvalid("void"), 4, True),
        (EngineFailed("killed"), 1, True),
        (BuildInterrupted("the compiler was killed"), 2, True),
        (BuildFailed("an error in a source"), 2, False),
        (OSError(28, "No space left on device", "file"), 2, True),
        (InputError("wrong"), 2, False),
        (RequestRefused("unsafe"), 2, False),
        (RefereeError(3, "not in RAM"), 1, False),
        (KeyError("x"), 1, False),
    ],
)
def test_an_error_says_whether_another_attempt_may_succeed(
    error: Exception, exit_code: int, may_pass: bool
) -> None:
    found = attempted(fail, error)
    assert isinstance(found, Failed)
    assert (found.exit_code, found.may_pass) == (exit_code, may_pass)
    assert str(error) in found.reason or isinstance(error, OSError)


def test_a_defect_names_the_place() -> None:
    found = attempted(fail, ZeroDivisionError("oh"))
    assert isinstance(found, Failed)
    assert found.reason.startswith("defect of Joulewright: ZeroDivisionError: oh (")
    assert "test_campaign_outcome.py, line" in found.reason


def test_a_board_in_use_is_no_failure() -> None:
    assert attempted(fail, BoardInUse("by another")) == Busy("by another")


def test_a_request_to_end_interrupts_and_the_handler_before_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert attempted(os.kill, os.getpid(), signal.SIGTERM) == Interrupted()
    assert signal.getsignal(signal.SIGTERM) == before

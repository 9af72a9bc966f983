"""Errors that end a command with one message, and the exit codes of the command line.

Every exception class that may leave the module that raises it derives from
:class:`JoulewrightError` and has an exit code. ``cli.py`` reads that code and nothing else.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    DONE = 0
    INTERNAL_ERROR = 1
    USAGE = 2
    BOARD_UNREACHABLE = 3
    MEASUREMENT_INVALID = 4
    INFEASIBLE = 5
    NO_SOLUTION = 6
    # No schedule exists in the class that was searched; others may exist.
    EXHAUSTED = 7
    # A comparison of campaigns found a change for the worse.
    WORSE = 8
    # Convention of shells for a program that SIGINT ended.
    INTERRUPTED = 130


class JoulewrightError(Exception):
    """Root of the project's errors; only subclasses are raised.

    Args:
        message: What went wrong, and where.
        operation: What was being done.
        remedy: What the user can do about it.

    The error's text is "operation: message; remedy", without the parts that are None.
    """

    exit_code: ClassVar[ExitCode]

    def __init__(
        self, message: str, *, operation: str | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.remedy = remedy

    def __str__(self) -> str:
        before = "" if self.operation is None else f"{self.operation}: "
        after = "" if self.remedy is None else f"; {self.remedy}"
        return f"{before}{super().__str__()}{after}"


class InputError(JoulewrightError, ValueError):
    """A file, an option or an argument cannot be used."""

    exit_code = ExitCode.USAGE


class RequestRefused(JoulewrightError):
    """The request is unsafe for this board, or needs an explicit option. Nothing was changed."""

    exit_code = ExitCode.USAGE


class FirmwareMismatch(RequestRefused):
    """The firmware on a board is not the one that its description asks for."""


class OtherFirmware(FirmwareMismatch):
    """The board that was asked for runs this project's firmware, built from something else."""


class BuildFailed(JoulewrightError):
    """The compiler is missing, or failed on the sources."""

    exit_code = ExitCode.USAGE


class BuildInterrupted(BuildFailed):
    """The compiler was killed, could not write or had no time. The same build may succeed later."""


class SetupMissing(JoulewrightError):
    """A board, or this computer, lacks a program or a writable directory. Nothing was changed."""

    exit_code = ExitCode.USAGE


class BoardUnreachable(JoulewrightError):
    """There is no connection to the board or instrument, or it was not restored in time."""

    exit_code = ExitCode.BOARD_UNREACHABLE


class BoardInUse(BoardUnreachable):
    """Another program uses the board, or its meter. Nothing was changed."""


class MeasurementInvalid(JoulewrightError):
    """The board was reached, but its measurements cannot be used.

    For example, windows stay void, a meter cannot do what its description states, or a command on
    the board fails.
    """

    exit_code = ExitCode.MEASUREMENT_INVALID


class TooFewTrials(MeasurementInvalid):
    """Operations have too few valid trials for a cost."""


class NoScheduleFound(JoulewrightError):
    """No schedule was found in time; there may be one."""

    exit_code = ExitCode.NO_SOLUTION


class OrdersExhausted(JoulewrightError):
    """No schedule fits in the orders that were searched; there may be one in others."""

    exit_code = ExitCode.EXHAUSTED


class Infeasible(JoulewrightError):
    """No schedule fits the budget."""

    exit_code = ExitCode.INFEASIBLE


class BoardCommandFailed(MeasurementInvalid):
    """A command on the board exited with a code other than 0, or exceeded its time limit."""


class SessionGone(BoardCommandFailed):
    """The session's directory on the board is gone: the board was restarted or cleaned."""


class EngineFailed(JoulewrightError):
    """A solver's engine or a worker process failed; the message contains its own error."""

    exit_code = ExitCode.INTERNAL_ERROR


class EngineUnavailable(EngineFailed):
    """A solver's engine could not be started: it is not installed, or lacks a library."""


class Defect(JoulewrightError):
    """An error of the project itself. The command line shows its traceback."""

    exit_code = ExitCode.INTERNAL_ERROR

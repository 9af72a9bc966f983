"""Errors that end a command in one sentence, and the exit codes of the command line.

Every exception class of the project that may leave the module that raises it derives from
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
    # By the convention of shells: ended by SIGINT.
    INTERRUPTED = 130


class JoulewrightError(Exception):
    """Root of the project's errors; only its children are raised.

    ``message`` says what went wrong, and where. ``operation`` is what was being done, ``remedy``
    what to do about it; where they are given, the error reads "operation: message; remedy".
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
    """A file, an option or an argument that cannot be used."""

    exit_code = ExitCode.USAGE


class RequestRefused(JoulewrightError):
    """Unsafe for this board, or needs an explicit option. Nothing was touched."""

    exit_code = ExitCode.USAGE


class FirmwareMismatch(RequestRefused):
    """The firmware on a board is not the one that its description asks for."""


class BuildFailed(JoulewrightError):
    """The compiler is missing, or refused the sources."""

    exit_code = ExitCode.USAGE


class BoardUnreachable(JoulewrightError):
    """No connection to the board or to an instrument, or one that was lost and did not come back
    before its deadline."""

    exit_code = ExitCode.BOARD_UNREACHABLE


class MeasurementInvalid(JoulewrightError):
    """The board was reached, but what it measures cannot be used: windows stay void, a meter cannot
    do what is described, a command on the board fails."""

    exit_code = ExitCode.MEASUREMENT_INVALID


class BoardCommandFailed(MeasurementInvalid):
    """A command on the board exited with another code than 0, or exceeded its time limit."""


class EngineFailed(JoulewrightError):
    """A solver's engine or a worker ended or gave up; the message says what it said."""

    exit_code = ExitCode.INTERNAL_ERROR


class Defect(JoulewrightError):
    """An error of the project itself. The command line shows its traceback."""

    exit_code = ExitCode.INTERNAL_ERROR

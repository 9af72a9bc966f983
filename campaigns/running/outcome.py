"""What became of an attempt in another process."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Generic, ParamSpec, TypeAlias, TypeVar

from devices.documents.readable import file_failure
from devices.errors import (
    BoardInUse,
    BuildInterrupted,
    Defect,
    EngineFailed,
    ExitCode,
    JoulewrightError,
)

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")

_MAY_PASS = frozenset({ExitCode.BOARD_UNREACHABLE, ExitCode.MEASUREMENT_INVALID})
_MAY_PASS_TOO = (BuildInterrupted, EngineFailed)


@dataclass(frozen=True)
class Succeeded(Generic[Result]):
    """An attempt that succeeded."""

    value: Result


@dataclass(frozen=True)
class Failed:
    """An attempt that failed. ``may_pass``: another attempt may succeed."""

    reason: str
    exit_code: int
    may_pass: bool


@dataclass(frozen=True)
class Busy:
    """An attempt that did not begin, because another program uses the board."""

    reason: str


@dataclass(frozen=True)
class Interrupted:
    """An attempt that was asked to end."""


Outcome: TypeAlias = Succeeded[Result] | Failed | Busy | Interrupted

DIED = Failed(
    "the process that did it has ended: it was killed, or ran out of memory",
    ExitCode.INTERNAL_ERROR,
    may_pass=True,
)


def attempted(
    task: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Outcome[Result]:
    """Call ``task`` in a process of its own, which SIGTERM interrupts, and say what became of it.

    An error of any kind is a failed attempt; it never leaves this function.
    """
    is_main = threading.current_thread() is threading.main_thread()  # not so on a Dask worker
    before = signal.signal(signal.SIGTERM, _interrupt) if is_main else None
    try:
        return Succeeded(task(*arguments, **named))
    except KeyboardInterrupt:
        return Interrupted()
    except BoardInUse as error:
        return Busy(str(error))
    except Defect as error:
        return _defect(error)
    except JoulewrightError as error:
        may_pass = error.exit_code in _MAY_PASS or isinstance(error, _MAY_PASS_TOO)
        return Failed(str(error), error.exit_code, may_pass)
    except OSError as error:
        return Failed(file_failure(error), ExitCode.USAGE, may_pass=True)
    except Exception as error:
        return _defect(error)
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


def _defect(error: Exception) -> Failed:
    """An error of the project itself, with the place where it was raised."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}, line {place.lineno}"
    reason = f"defect of Joulewright: {type(error).__name__}: {error} ({where})"
    return Failed(reason, ExitCode.INTERNAL_ERROR, may_pass=False)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt

#!/usr/bin/env python3
"""Joulewright's command line: ``cli.py profile``, ``solve``, ``run``, ``export``, ``sweep``,
``plot``, ``diff``, ``flash``, ``lab``, ``devices``, ``models``.

Only what a command needs is imported, and only when it runs.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence

from commands import exit_codes
from commands.command_line import parse
from commands.console import Console


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    arguments = parse(argv)
    console = Console(json_output=arguments.json)
    try:
        return int(_command(arguments.command)(arguments, console))
    except KeyboardInterrupt:
        resumed = arguments.command in _RESUMED and not getattr(arguments, "refine", None)
        kept = "; what was finished is kept, and the same command goes on with it"
        console.say(f"interrupted{kept if resumed else ''}")
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # Whoever read standard output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.DONE
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        console.say(f"error: {_sentence(error)}")
        return code


def _command(name: str) -> Callable[[Namespace, Console], int]:
    match name:
        case "profile":
            from commands.profile import profile

            return profile
        case "solve":
            from commands.solve import solve

            return solve
        case "run":
            from commands.run import run

            return run
        case "sweep":
            from commands.sweep import sweep

            return sweep
        case "plot":
            from commands.plot import plot

            return plot
        case "export":
            from commands.export import export

            return export
        case "diff":
            from commands.diff import diff

            return diff
        case "flash":
            from commands.flash import flash

            return flash
        case "lab":
            from commands.lab import lab

            return lab
        case "models":
            from commands.listing import list_models

            return list_models
    from commands.listing import list_devices

    return list_devices


def _exit_code(error: Exception) -> int | None:
    """Of an error that says what is wrong with the input, the board or the machine; None for what
    is a defect and deserves its traceback."""
    from profiler import errors

    if isinstance(error, errors.BoardUnreachable):
        return exit_codes.BOARD_UNREACHABLE
    if isinstance(error, errors.BuildFailed | errors.RequestRefused):
        return exit_codes.USAGE
    if isinstance(error, errors.ProfilerError):
        return exit_codes.MEASUREMENT_INVALID
    if isinstance(error, RuntimeError) and type(error).__name__ in {"EngineError", "WorkerError"}:
        return exit_codes.INTERNAL_ERROR
    # DocumentError, ModelError, CostingError, QuantityError, …: each a ValueError of the project's
    # own. A ValueError of Python's own is a defect.
    if isinstance(error, ValueError) and type(error) is not ValueError:
        return exit_codes.USAGE if type(error).__module__.split(".")[0] in _OURS else None
    if isinstance(error, OSError) and error.filename is not None:
        return exit_codes.USAGE
    return None


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    return str(error)


# Whose work is kept piece by piece.
_RESUMED = {"profile", "sweep"}

_OURS = {"commands", "devices", "networks", "plots", "profiler", "replay", "solver"}


if __name__ == "__main__":
    sys.exit(main())

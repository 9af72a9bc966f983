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

from commands.command_line import parse
from commands.console import Console
from devices.errors import Defect, ExitCode, JoulewrightError


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
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read standard output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except Defect:
        raise
    except JoulewrightError as error:
        console.say(f"error: {error}")
        return error.exit_code
    except OSError as error:
        if error.filename is None:
            raise
        console.say(f"error: {error.filename}: {error.strerror}")
        return ExitCode.USAGE


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


# Whose work is kept piece by piece.
_RESUMED = {"profile", "sweep"}


if __name__ == "__main__":
    sys.exit(main())

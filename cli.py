#!/usr/bin/env python3
"""Joulewright's command line.

Commands: ``profile``, ``check``, ``solve``, ``run``, ``tune``, ``export``, ``sweep``,
``campaign``, ``serve``, ``plot``, ``diff``, ``flash``, ``lab``, ``devices``, ``models``. Each
command imports its modules only when it runs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence

from commands.command import Call
from commands.command_line import parse
from commands.console import Console
from commands.stopping import StopSignals
from devices.documents.readable import with_short_words
from devices.errors import Defect, ExitCode, JoulewrightError
from devices.program import DEPENDENCIES, setup_words


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Ctrl-C, SIGTERM and SIGHUP end the command early: with what it has found so far, and with 128
    plus the number of the signal as exit code.

    Args:
        argv: Words of the command; by default those of this process, which ends with the command.
    """
    with StopSignals(ends_program=argv is None) as stop:
        try:
            code = _run(argv)
        except KeyboardInterrupt:  # another one, while the first was reported
            code = ExitCode.INTERRUPTED
    return code if stop.exit_code is None else stop.exit_code


def _run(argv: Sequence[str] | None) -> int:
    console = Console()
    call: Call | None = None
    try:
        call = parse(argv)
        return int(call.run(Console(call.json_output)))
    except KeyboardInterrupt:
        resumes = call is not None and call.resumes
        kept = "; finished parts are kept: run the same command again to resume"
        console.say(f"interrupted{kept if resumes else ''}")
        return ExitCode.INTERRUPTED
    except Defect:
        raise
    except ModuleNotFoundError as error:
        if error.name not in DEPENDENCIES:
            raise
        console.say(f"error: {sys.executable} lacks the package {error.name}: {setup_words()}")
        return ExitCode.USAGE
    except JoulewrightError as error:
        console.say(f"error: {with_short_words(str(error))}")
        return error.exit_code
    except OSError as error:
        from devices.documents.disk import lacks_room
        from devices.documents.readable import file_failure

        if error.filename is None and not lacks_room(error):
            raise
        console.say(f"error: {file_failure(error)}{_where_room_is_needed(error)}")
        return ExitCode.USAGE


def _where_room_is_needed(error: OSError) -> str:
    if error.filename is not None or tempfile.tempdir is None:
        return ""
    return f"; temporary files are in {tempfile.tempdir}"


if __name__ == "__main__":
    sys.exit(main())

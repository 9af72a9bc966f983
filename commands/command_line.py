"""Parser of the command line: all commands, and the options of the one that is named."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from commands.command import Call, Command
from devices.documents.readable import with_short_words
from devices.program import NAME

_SUMMARIES: Mapping[str, str] = {
    "profile": "measure a board",
    "check": "measure again, and count the intervals of a profile that hold",
    "solve": "find the schedule of least energy that fits",
    "run": "run a schedule on its board and measure it",
    "tune": "solve, run, correct the costs, and solve again until nothing changes",
    "sweep": "solve for many RAM budgets and deadlines, and draw the trade-off",
    "campaign": "measure many boards, networks, budgets and methods, and compare",
    "serve": "offer the solver as a page and as JSON",
    "plot": "draw profiles and schedules",
    "export": "write a schedule as a C project or as a trace",
    "diff": "show which costs differ between two profiles, and by how much",
    "devices": "list the boards of the catalogue",
    "flash": "put firmware on a microcontroller",
    "lab": "keep emulated boards running",
    "models": "list the networks",
}

_EXIT_CODES = """exit codes: 0 done; 1 internal error; 2 usage or bad input file;
3 board unreachable; 4 measurement invalid; 5 no schedule fits;
6 limit reached without a solution; 7 no schedule in the class that was searched;
8 campaign compare: the second takes more time or energy;
128 + number of the signal that ended the command early, with what it has found so far:
130 Ctrl-C, 143 SIGTERM, 129 SIGHUP"""


class _Parser(argparse.ArgumentParser):
    """A parser whose messages shorten words of hundreds of characters."""

    def error(self, message: str) -> NoReturn:
        super().error(with_short_words(message))


def parse(argv: Sequence[str] | None = None) -> Call:
    """Parse ``argv`` into the command that it names, with its options.

    A usage error ends the program with a message and exit code 2.

    Raises:
        InputError: Options exclude each other.
    """
    words = sys.argv[1:] if argv is None else argv
    # Only the named command is imported.
    named = next((word for word in words if word in _SUMMARIES), None)
    parser = _Parser(
        prog=NAME,
        description="Measure what training costs on a board, and find the schedule of\n"
        "recomputation and paging that fits its RAM with provably least energy.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    parsers = {name: commands.add_parser(name, help=_SUMMARIES[name]) for name in _SUMMARIES}
    if named is None:
        parser.parse_args(words)
    assert named is not None, "the parser ends the program without a command"
    command = _command(named)
    command.add_options(parsers[named])
    namespace = parser.parse_args(words)
    try:
        return command.call(namespace)
    except argparse.ArgumentError as error:
        parser.error(str(error))


def _command(name: str) -> Command[Any]:
    match name:
        case "profile":
            from commands.profile.command import PROFILE

            return PROFILE
        case "solve":
            from commands.solve.command import SOLVE

            return SOLVE
        case "run":
            from commands.run.command import RUN

            return RUN
        case "check":
            from commands.check import CHECK

            return CHECK
        case "tune":
            from commands.tune import TUNE

            return TUNE
        case "sweep":
            from commands.sweep.command import SWEEP

            return SWEEP
        case "campaign":
            from commands.campaign.command import CAMPAIGN

            return CAMPAIGN
        case "serve":
            from commands.serve import SERVE

            return SERVE
        case "plot":
            from commands.plot import PLOT

            return PLOT
        case "export":
            from commands.export import EXPORT

            return EXPORT
        case "diff":
            from commands.diff import DIFF

            return DIFF
        case "devices":
            from commands.listing import DEVICES

            return DEVICES
        case "flash":
            from commands.flash import FLASH

            return FLASH
        case "lab":
            from commands.lab import LAB

            return LAB
    from commands.listing import MODELS

    return MODELS

"""Run of a benchmark from its command line: measure, print the page, write it."""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.machine import load_average, machine, python_version, release
from benchmarks.pages import Origin, Page, render
from devices.documents.document import require_writable, write_atomically
from tests.support.paths import ROOT

# Folders of material that the reader has elsewhere.
_PLACEHOLDERS = {"--moccasin": "FOLDER"}


def command_line(doc: str | None = None) -> argparse.ArgumentParser:
    """Parser with ``--write``. Without ``doc``, a parent for parsers of sub-commands."""
    parser = argparse.ArgumentParser(
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=doc is not None,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="page to write, for example docs/benchmarks/x.md"
    )
    return parser


def publish(
    module: str, parser: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], Page]
) -> None:
    """Measure what the command line asks for, print the page, and write it with ``--write``."""
    arguments = parser.parse_args()
    if arguments.write is not None:
        require_writable(arguments.write)
    today, began_s, load = datetime.date.today(), time.monotonic(), load_average()
    made_from = release()
    page = measure(arguments)
    origin = Origin(
        command=recorded_command(module, sys.argv[1:]),
        date=today.isoformat(),
        minutes=(time.monotonic() - began_s) / 60,
        release=made_from,
        machine=machine(),
        python=python_version(),
        loads=(load, load_average()),
    )
    text = render(page, origin)
    print(text, end="")
    if arguments.write is not None:
        write_atomically(arguments.write, text)


def report_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def recorded_command(module: str, words: Sequence[str]) -> str:
    """The command as a reader can repeat it. Paths inside the checkout are relative to it, and
    placeholders stand for other paths."""
    shown = [".venv/bin/python", "-m", module]
    option = ""
    for word in words:
        if word.startswith("--") and "=" in word:
            option, _, value = word.partition("=")
            shown += [option, _recorded_word(option, value)]
        else:
            shown.append(_recorded_word(option, word))
            option = word if word.startswith("-") else ""
    return shlex.join(shown)


def _recorded_word(option: str, word: str) -> str:
    if option in _PLACEHOLDERS:
        return _PLACEHOLDERS[option]
    path = Path(os.path.normpath(Path.cwd() / word))
    if os.sep not in word:
        return word
    if path.is_relative_to(ROOT):
        return path.relative_to(ROOT).as_posix()
    return "FOLDER" if path.is_dir() else "FILE"

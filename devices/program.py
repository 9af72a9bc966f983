"""Name and version of the program, and the processes that it starts."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import AnyStr, TypeVar

Result = TypeVar("Result")

_ROOT = Path(__file__).parents[1]

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command: Ctrl-C, the request of a batch system, a closed terminal."""

_IS_CHECKOUT = (_ROOT / "pyproject.toml").is_file()

NAME = "cli.py" if _IS_CHECKOUT else "joulewright"
"""Name of the program, for its usage."""

_PYTHON = ".venv/bin/python" if (_ROOT / ".venv").exists() else "python"

COMMAND = f"{_PYTHON} {NAME}" if _IS_CHECKOUT else NAME
"""What to paste into a shell before a sub-command; in a checkout, from its directory."""

DEPENDENCIES = frozenset({
    "cffi", "cobs", "cryptography", "fabric", "highspy", "jinja2", "loky", "markupsafe",
    "matplotlib", "mip", "numpy", "ortools", "pandas", "paramiko", "pyarrow", "pydantic",
    "pydantic_core", "pyvisa", "pyvisa_py", "rich", "safetensors", "scipy", "serial", "tenacity",
    "yaml",
})  # fmt: skip
"""Modules of the packages that this project always needs, as they are imported."""

_GIT_S = 10.0


def command_line(*words: object) -> str:
    """A command of this program to paste into a shell, whatever the words are."""
    return " ".join((COMMAND, *(shlex.quote(str(word)) for word in words)))


def setup_words() -> str:
    """Sentence on how to get an environment that has the packages that this project needs."""
    if _IS_CHECKOUT:
        return f"run make setup in {_ROOT}, and there call .venv/bin/python {NAME}"
    return f"install {NAME} again"


def installing(*packages: str) -> str:
    """Command that installs packages where this process finds them."""
    return shlex.join((sys.executable, "-m", "pip", "install", *packages))


def installing_extra(extra: str) -> str:
    """Command that installs the packages of an extra of this project."""
    return installing(f"{_ROOT if _IS_CHECKOUT else NAME}[{extra}]")


@cache
def program_version() -> str:
    """Version of this project: of the installed package, or of the checkout with its commit."""
    if not _IS_CHECKOUT:
        try:
            return version(NAME)
        except PackageNotFoundError:
            return "unknown"
    stated: str = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"]
    words = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(words, capture_output=True, text=True, timeout=_GIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return stated
    return f"{stated}+{found.stdout.strip()}"


def module_process(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Build command and environment of a process that runs ``python -m MODULE ARGUMENTS...``.

    The process searches modules where this process does. Python alone would search the working
    directory first, in which a user may have a ``solver.py``.

    Args:
        module: Dotted name of the module.
        arguments: Its command line arguments.

    Returns:
        The words of the command, and the environment variables.
    """
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    command = [sys.executable, "-P", "-m", module, *arguments]
    return command, {**os.environ, "PYTHONPATH": path}


def leave_stopping_to_parent() -> None:
    """Ignore Ctrl-C, SIGTERM and SIGHUP in this child process.

    They often go to all processes at once: a terminal sends Ctrl-C to its process group, a batch
    system SIGTERM to the whole job. The parent handles them, asks for the best result so far, and
    then kills its children.
    """
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)  # blocked while this process was started


@contextmanager
def stops_put_off() -> Iterator[None]:
    """Put off what Ctrl-C, SIGTERM and SIGHUP do to this process until the context ends.

    Handlers run between any two instructions of the main thread, whichever thread the signal came
    to, so that they are replaced. Processes that are started meanwhile do not inherit that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    is_open = False

    def note(number: int, frame: FrameType | None) -> None:
        if is_open:
            arrived.append(number)
        else:  # between replacing the first handler and the last, or restoring them
            handlers[signal.Signals(number)](number, frame)

    found = {number: signal.getsignal(number) for number in STOPS}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, note)
    is_open = True
    try:
        yield
    finally:
        is_open = False
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


def done_in_any_case(work: Callable[[], Result]) -> Result:
    """Do what takes a moment, whatever signals arrive meanwhile, and return its result.

    Their handlers are called; a :class:`KeyboardInterrupt` that one of them raises is dropped: with
    it, the result would be lost.
    """
    done: list[Result] = []
    has_begun = False
    while not done:
        try:
            with stops_put_off():
                has_begun = True
                done.append(work())
        except KeyboardInterrupt:
            if has_begun and not done:  # no signal: the work itself raised it
                raise
    return done[0]


@contextmanager
def ended_in_any_case(
    start: Callable[[], subprocess.Popen[AnyStr]], end: Callable[[subprocess.Popen[AnyStr]], None]
) -> Iterator[subprocess.Popen[AnyStr]]:
    """Start a process, and end it with the context.

    Ctrl-C, SIGTERM or SIGHUP may arrive after the process has started and before its caller has it.
    A process in a session of its own, which does not get the signal, would then be left running.
    """
    process: subprocess.Popen[AnyStr] | None = None
    try:
        with stops_put_off():
            process = start()
        yield process
    finally:
        if process is not None:
            with process:
                end(process)

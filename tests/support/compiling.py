"""Compile what the tests need from the repository once in a run, for all of its processes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import gettempdir

import pytest

from devices.claims.scratch import ScratchDirectory

_VARIABLE = "JOULEWRIGHT_TESTS_COMPILED"


def share_compiled(config: pytest.Config) -> None:
    """Keep results of :func:`compile_once` until the first process of this run of tests ends."""
    if _VARIABLE not in os.environ:
        directory = ScratchDirectory(Path(gettempdir()), "jw-test-compiled-")
        os.environ[_VARIABLE] = str(directory.path)
        config.add_cleanup(directory.remove)
        config.add_cleanup(lambda: os.environ.pop(_VARIABLE))


def compile_once(command: Sequence[str], target: Path, libraries: Sequence[str] = ()) -> None:
    """Run ``[*command, "-o", target, *libraries]``, or copy what it gave before.

    ``target`` is always a file of its own, since two libraries that are loaded from one file would
    share their variables. No source that is named may change during a run of tests. Outside of
    pytest, results are kept only next to ``target``.

    Raises :class:`subprocess.CalledProcessError` if the compiler fails.
    """
    key = hashlib.sha256(repr((command, libraries)).encode()).hexdigest()
    kept = Path(os.environ.get(_VARIABLE, target.parent)) / key
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            made = kept.with_suffix(".new")
            subprocess.run([*command, "-o", str(made), *libraries], check=True)
            made.rename(kept)
    shutil.copy(kept, target)

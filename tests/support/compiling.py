"""Compile what the tests need from the repository once, and keep it for the next run."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from devices.user_cache import user_cache

_VARIABLE = "JOULEWRIGHT_TESTS_COMPILED"
_KEPT_S = 7 * 24 * 3600.0


def share_compiled(config: pytest.Config) -> None:
    """Share results of :func:`compile_once` with all processes of this run and with later runs.

    What no test has used for a week is removed.
    """
    if _VARIABLE not in os.environ:
        directory = user_cache().with_name("joulewright-tests")
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.iterdir():
            with suppress(FileNotFoundError):  # another run has renamed or removed it
                if path.stat().st_mtime < time.time() - _KEPT_S:
                    path.unlink()
        os.environ[_VARIABLE] = str(directory)
        config.add_cleanup(lambda: os.environ.pop(_VARIABLE))


def compile_once(command: Sequence[str], target: Path, libraries: Sequence[str] = ()) -> None:
    """Run ``[*command, "-o", target, *libraries]``, or copy what it gave for the same sources.

    ``target`` is always a file of its own, since two libraries that are loaded from one file would
    share their variables. Outside of pytest, results are kept only next to ``target``.

    Raises :class:`subprocess.CalledProcessError` if the compiler fails.
    """
    kept = Path(os.environ.get(_VARIABLE, target.parent)) / _key([*command, *libraries])
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            made = kept.with_suffix(".new")
            subprocess.run([*command, "-o", str(made), *libraries], check=True)
            made.rename(kept)
        kept.touch()
        shutil.copy(kept, target)


def _key(words: Sequence[str]) -> str:
    """Hash of a command, its compiler, the processor that ``native`` means, and all sources."""
    macros = [words[0], "-march=native", "-dM", "-E", "-x", "c", os.devnull]
    digest = hashlib.sha256(subprocess.run(macros, check=True, capture_output=True).stdout)
    for word in words:
        parts = list(_sources(Path(word.removeprefix("-I")))) or [word.encode()]
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _sources(path: Path) -> Iterator[bytes]:
    """Contents of a source and the headers next to it, or of all in a folder of headers."""
    if path.suffix == ".c":
        yield path.read_bytes()
        found = path.parent.glob("*.h")
    elif path.is_dir():
        found = (each for each in path.rglob("*") if each.suffix in {".c", ".h"})
    else:
        return
    for each in sorted(found):
        yield each.name.encode()
        yield each.read_bytes()

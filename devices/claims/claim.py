"""Exclusive use of a directory, file, port or board by one process at a time.

The lock is the kernel's (``flock``), on a file that also holds a record of the owner. The kernel
releases it when the process ends, however that happens. The file may remain; nobody owns it then.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from devices.claims.owner import Owner
from devices.documents.document import DocumentError, dump_json, parse_json, validate
from devices.documents.readable import file_failure
from devices.documents.regular import replaced_by_writing
from devices.errors import InputError, RequestRefused
from devices.user_cache import user_cache

LOCK = ".lock"
"""Name of the lock file of a directory."""

_POLL_S = 0.02
_RECORD_S = 0.5  # the longest time from a lock to its record
_LONGEST_RECORD = 1 << 16


class HeldError(RequestRefused):
    """Another process holds the claim; ``owner`` is None if its record cannot be read."""

    def __init__(self, owner: Owner | None) -> None:
        super().__init__(f"another program uses this: {owner or 'an unknown one'}")
        self.owner = owner


class Claim:
    """A lock on the file at ``path``, held until :meth:`release`.

    The constructor raises :class:`HeldError` if another process holds it after ``patience_s``, and
    :class:`OSError` if the file cannot be written or its file system has no locks.
    """

    def __init__(self, path: Path, *, patience_s: float = 0.0) -> None:
        self._path = path
        until = time.monotonic() + patience_s
        while (handle := _locked(path)) is None:
            if time.monotonic() >= until:
                raise HeldError(_recorded(path))
            time.sleep(_POLL_S)
        self._handle = handle
        try:
            os.truncate(handle, 0)
            os.write(handle, dump_json(Owner.this_process()).encode())
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock and remove its file. May be called twice."""
        if self._handle >= 0:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._handle)
            self._handle = -1


@contextmanager
def sole_user(directory: Path, *, patience_s: float = 0.0) -> Iterator[None]:
    """Keep other processes out of a directory, which is created if it is missing.

    A directory that was created and is still empty at the end is removed again.

    Args:
        directory: The directory.
        patience_s: How long to wait for another process that uses it.

    Raises:
        RequestRefused: Another process uses the directory; the message names it.
        InputError: The directory cannot be written to, or its file system has no locks.
    """
    refused = _Refusal(
        f"{directory}: another program uses this directory",
        "wait until it has ended, or choose another directory",
    )
    with _claimed(directory, LOCK, refused, patience_s):
        yield


def user_of(directory: Path) -> Owner | None:
    """The process that has a directory to itself now; None if nobody has, or it is unknown."""
    path = directory / LOCK
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _recorded(path)
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(handle)
    return None


@contextmanager
def sole_writer(file: Path) -> Iterator[None]:
    """Keep other processes from writing a file, long before it is written.

    Its directory is created if it is missing, and removed again if it is still empty at the end.

    Args:
        file: The file, which need not exist.

    Raises:
        RequestRefused: Another process is going to write the file; the message names it.
        InputError: The file cannot be written, or its file system has no locks.
    """
    try:
        place = replaced_by_writing(file)
    except OSError as error:
        raise InputError(file_failure(error)) from None
    refused = _Refusal(
        f"{file}: another program is going to write this file",
        "wait until it has ended, or choose another file",
    )
    with _claimed(place.parent, f".{place.name}{LOCK}", refused, patience_s=0.0):
        yield


def claim_by_name(kind: str, name: str) -> Claim:
    """Claim something that is no file, for this user's processes on this computer.

    The lock is in the user's runtime directory (XDG Base Directory Specification), or in the cache
    on a computer without one.

    Args:
        kind: Kind of thing, such as ``ports``.
        name: Its name, the same in all processes.

    Raises:
        HeldError: Another process holds the claim.
        OSError: The lock cannot be written, or its file system has no locks; it names the file.
    """
    directory = _runtime_directory() / kind
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / hashlib.sha256(name.encode()).hexdigest()
    try:
        return Claim(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _runtime_directory() -> Path:
    """The same one in a session and outside, as in a cron job, which lacks the variable."""
    user = os.getuid()
    for path in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}"):
        try:
            # With sudo -E, the variable names the directory of another user.
            if path and Path(path).stat().st_uid == user:
                return Path(path) / "joulewright"
        except OSError:
            continue
    return user_cache() / "claims"


@dataclass(frozen=True)
class _Refusal:
    """What to say where another process holds a claim."""

    what: str
    remedy: str


@contextmanager
def _claimed(directory: Path, lock: str, refused: _Refusal, patience_s: float) -> Iterator[None]:
    """Hold the lock file ``lock`` in a directory, which is created if it is missing."""
    is_new = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        claim = Claim(directory / lock, patience_s=patience_s)
    except HeldError as held:
        raise RequestRefused(
            f"{refused.what}: {held.owner or 'an unknown one'}", remedy=refused.remedy
        ) from None
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(file_failure(error)) from None
    except OSError as error:
        if is_new:
            with suppress(OSError):  # this call has just made the directory: nobody else uses it
                (directory / lock).unlink(missing_ok=True)
                directory.rmdir()
        raise InputError(
            f"{directory}: this directory cannot be locked for this program alone"
            f" ({error.strerror or error})",
            remedy="choose a directory that this user may write to, on a file system with locks",
        ) from None
    try:
        yield
    finally:
        claim.release()
        if is_new:
            with suppress(OSError):  # it is not empty
                directory.rmdir()


def _locked(path: Path) -> int | None:
    """A handle with the lock on the file at ``path``; None if another process has it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except FileNotFoundError:  # its owner has released it and removed the file
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _recorded(path: Path) -> Owner | None:
    """The owner in the file at ``path``, which it writes right after taking the lock."""
    until = time.monotonic() + _RECORD_S
    while True:
        try:
            with path.open(encoding="utf-8", errors="replace") as stream:
                text = stream.read(_LONGEST_RECORD)
            return validate(parse_json(text, str(path)), Owner, str(path))
        except (OSError, DocumentError):
            if time.monotonic() >= until:
                return None
            time.sleep(_POLL_S)

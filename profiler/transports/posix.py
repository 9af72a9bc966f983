"""Transport to a board with a POSIX shell.

Implements the whole protocol of :mod:`profiler.transports.base` over a link that runs scripts, so
that every such board behaves the same however it is reached.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import secrets
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeAlias

from devices.claims.owner import Owner
from devices.documents.disk import names_when_full
from devices.errors import BoardCommandFailed, BoardInUse, BoardUnreachable, JoulewrightError
from profiler.transports import scripts
from profiler.transports.base import CommandResult, DetachedStatus
from profiler.transports.client import ClientLock, forget, is_dead, is_token
from profiler.transports.link import ConnectionLostError, Link
from profiler.transports.shell import OUTPUT_LIMIT_BYTES, Finished, OutputLimitError, Shell, quoted

_KILL_GRACE_S = 10.0  # for the board to end a command at its limit, in two stages
_SESSION_LIMIT_S = 15.0  # to make or remove a session's directory

_FULL = re.compile("No space|quota|too large|size limit", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Control: TypeAlias = Callable[[str, float], tuple[str, str]]


class PosixTransport:
    """Implements :class:`~profiler.transports.base.Transport`.

    Calls that can be repeated without harm (all but ``run``) survive a lost connection. It is
    restored and the call repeated until the link's patience ends, so that such a call may take that
    much longer than its ``timeout_s``. A command that loses its connection is not run again, since
    it may have had its effect.
    """

    def __init__(self, link: Link) -> None:
        self._shell = Shell(link)
        self._client = ClientLock()
        self._directory: str | None = None
        self._owner: Owner | None = None

    @property
    def name(self) -> str:
        return self._shell.name

    @property
    def directory(self) -> str:
        if self._directory is None:
            raise BoardUnreachable(f"{self.name}: not connected")
        return self._directory

    def connect(self) -> None:
        if self._directory is not None:
            return
        try:
            self._shell.connect()
            self._client.acquire()
            self._open_session()
            if self._owner is not None:
                self.claim(self._owner)
        except BaseException:
            self.close()
            raise

    def claim(self, owner: Owner) -> None:
        process = f"{owner.pid} {owner.host}"
        script = scripts.claim(self.directory, process, str(owner))
        other, _ = self._shell.control(script, _SESSION_LIMIT_S, what="claiming the board")
        if other:
            raise BoardInUse(
                f"{self.name}: another program uses this board: {other.strip()}",
                remedy="wait until it has ended, or end it; if it was lost, the board is free"
                f" again {scripts.LEASE_MINUTES} minutes later, when what it runs there has ended",
            )
        self._owner = owner

    def put(self, local: Path, remote: str, *, timeout_s: float, executable: bool = False) -> None:
        """As the protocol; also raises :class:`OSError` if ``local`` cannot be read."""
        with local.open("rb") as source:
            size_bytes = os.fstat(source.fileno()).st_size
            directory, checked = self.directory, _checked_path(remote)

            def attempt(limit_s: float) -> Finished:
                source.seek(0)
                # An attempt that was cut off removes its own file, whenever it notices.
                script = scripts.put(
                    directory,
                    checked,
                    token=secrets.token_hex(8),
                    size_bytes=size_bytes,
                    executable=executable,
                )
                return self._shell.execute(script, limit_s, source=source)

            finished = self._shell.transfer(f"putting {remote!r}", attempt, timeout_s)
        if finished.exit_code != 0:
            reason, free_kib = _split_report(finished.stderr, "free")
            free = ""
            if free_kib is not None and (_FULL.search(reason) or free_kib * 1024 < size_bytes):
                free = f"; {free_kib * 1024} bytes are free there"
            raise BoardCommandFailed(
                f"{self.name}: cannot put {remote!r} ({size_bytes} bytes) into {self.directory}:"
                f" {reason}{free}"
            )

    def get(self, remote: str, local: Path, *, timeout_s: float) -> None:
        """As the protocol; also raises :class:`OSError` if ``local`` cannot be written."""
        script = scripts.get(self.directory, _checked_path(remote))
        handle, part = tempfile.mkstemp(prefix=".get.", dir=local.parent)
        try:
            with names_when_full(local), os.fdopen(handle, "wb") as stream:
                self._fetch(script, remote, stream, timeout_s)
            os.replace(part, local)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """As the protocol. The board itself ends the command's process group at the time limit,
        even without a connection, and with it children that outlive the command."""
        command = shlex.join(argv)
        job = f"run-{secrets.token_hex(8)}"
        script = scripts.run(
            self.directory,
            job,
            _checked_words(argv),
            _checked_environment(environment),
            time_limit_s=timeout_s,
        )

        def attempt(_limit_s: float) -> Finished:
            return self._shell.execute(script, timeout_s + _KILL_GRACE_S)

        try:
            finished = self._shell.repeat(attempt, timeout_s, again=lambda lost: not lost.started)
        except OutputLimitError:
            self._shell.control(scripts.stop(self.directory, job), _SESSION_LIMIT_S)
            raise BoardCommandFailed(
                f"{self.name}: {command} printed more than {OUTPUT_LIMIT_BYTES} bytes and was"
                " ended",
                remedy="let it write to a file",
            ) from None
        except ConnectionLostError as lost:
            if not lost.started:
                raise self._shell.gave_up(lost) from lost
            raise BoardUnreachable(
                f"{self.name}: the connection was lost while {command} ran ({lost}); it was not run"
                " again because it may have had its effect; the board ends it at its time limit"
            ) from lost
        stderr, found, state = finished.stderr.rpartition(f"\n{job} ")
        if not found:
            raise self._shell.refused(f"running {command}", finished)
        if state.strip() == "vanished":
            raise BoardCommandFailed(
                f"{self.name}: {command} could not be started, or was killed from outside"
                + quoted(stderr)
            )
        if state.strip() == "timed-out":
            raise BoardCommandFailed(
                f"{self.name}: {command} did not finish within {timeout_s:g} s and was ended"
            )
        exit_code = int(state.strip().removeprefix("exit-"))
        if check and exit_code != 0:
            raise BoardCommandFailed(
                f"{self.name}: {command} exited with {exit_code}"
                + quoted(stderr.strip() or finished.stdout)
            )
        return CommandResult(command, exit_code, finished.stdout, stderr)

    def start(
        self, argv: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> PosixDetachedCommand:
        job = f"job-{secrets.token_hex(8)}"
        words, variables = _checked_words(argv), _checked_environment(environment)
        self._shell.control(scripts.start(self.directory, job, words, variables), timeout_s)
        return PosixDetachedCommand(
            name=f"{self.name}: {shlex.join(argv)}",
            directory=self.directory,
            job=job,
            control=self._shell.control,
        )

    def close(self) -> None:
        directory, self._directory = self._directory, None
        cleaned = False
        try:
            if directory is not None:
                parent = posixpath.dirname(directory)
                script = scripts.remove_sessions(parent, [self._client.token])
                patience_s = min(self._shell.patience_s, _SESSION_LIMIT_S)
                self._shell.control(script, _SESSION_LIMIT_S, patience_s=patience_s)
                cleaned = True
        except JoulewrightError:
            return  # the board is lost; a later session finds the leftovers by the lock file
        finally:
            self._client.release(cleaned=cleaned)
            self._shell.close()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open_session(self) -> None:
        listing, _ = self._shell.control(
            scripts.open_session(self._client.token),
            _SESSION_LIMIT_S,
            what="making a working directory",
        )
        self._directory, *others = listing.splitlines()
        abandoned = []
        for line in others:
            token, _, age = line.rpartition(" ")
            if is_dead(token) or (age == "old" and is_token(token)):
                abandoned.append(token)
        for token in abandoned:
            script = scripts.remove_sessions(posixpath.dirname(self._directory), [token])
            with contextlib.suppress(JoulewrightError):  # this session does not depend on it
                self._shell.control(script, _SESSION_LIMIT_S)
                forget(token)

    def _fetch(self, script: str, remote: str, stream: BinaryIO, timeout_s: float) -> None:
        def attempt(limit_s: float) -> Finished:
            stream.seek(0)
            stream.truncate()
            return self._shell.execute(script, limit_s, out=stream.write)

        finished = self._shell.transfer(f"getting {remote!r}", attempt, timeout_s)
        reason, size_bytes = _split_report(finished.stderr, "size")
        if finished.exit_code != 0 or size_bytes != stream.tell():
            raise BoardCommandFailed(
                f"{self.name}: cannot get {remote!r} from {self.directory}: {reason}"
            )
        stream.flush()
        os.fsync(stream.fileno())
        os.fchmod(stream.fileno(), 0o644)


class PosixDetachedCommand:
    """Implements :class:`~profiler.transports.base.DetachedCommand`."""

    def __init__(self, *, name: str, directory: str, job: str, control: Control) -> None:
        self._name = name
        self._directory = directory
        self._job = job
        self._control = control

    def poll(self, *, timeout_s: float) -> DetachedStatus:
        """State of the command. Raises :class:`~devices.errors.BoardCommandFailed` if it is gone
        without an exit code, because the board was restarted or ran out of memory."""
        text, _ = self._control(scripts.poll(self._directory, self._job), timeout_s)
        state = text.strip()
        if state == "running":
            return DetachedStatus(None)
        if state == "vanished":
            raise BoardCommandFailed(
                f"{self._name}: ended without an exit code; it was killed, or the board restarted"
            )
        return DetachedStatus(int(state.removeprefix("exit-")))

    def output(self, *, timeout_s: float) -> tuple[str, str]:
        return self._control(scripts.output(self._directory, self._job), timeout_s)

    def stop(self, *, timeout_s: float) -> None:
        self._control(scripts.stop(self._directory, self._job), timeout_s)


def _split_report(stderr: str, word: str) -> tuple[str, int | None]:
    """A tool's last reason, and the number in the script's own last line, ``word NUMBER``."""
    lines = stderr.strip().splitlines() or [""]
    number = None
    if re.fullmatch(rf"{word} \d+", lines[-1]):
        number = int(lines.pop().split()[1])
    reason = lines[-1].rpartition(": ")[2] if lines else ""
    return reason or "it is incomplete", number


def _checked_path(remote: str) -> str:
    if not remote or "\0" in remote:
        raise ValueError(f"not a path on a board: {remote!r}")
    return remote


def _checked_words(argv: Sequence[str]) -> Sequence[str]:
    if not argv or any("\0" in word for word in argv):
        raise ValueError(f"not a command: {argv!r}")
    return argv


def _checked_environment(environment: Mapping[str, str] | None) -> Mapping[str, str]:
    for name, value in (environment or {}).items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise ValueError(f"not an environment variable: {name}={value!r}")
    return environment or {}

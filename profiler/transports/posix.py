"""A board with a POSIX shell: the whole protocol of :mod:`profiler.transports.base` on top of a
link that can run scripts, so that every such board behaves the same however it is reached."""

from __future__ import annotations

import os
import posixpath
import re
import secrets
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeAlias, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential

from profiler.errors import BoardCommandFailed, BoardUnreachable, ProfilerError
from profiler.transports import scripts
from profiler.transports.base import CommandResult, DetachedStatus
from profiler.transports.client import ClientLock, forget, is_dead, is_token
from profiler.transports.deadline import Deadline
from profiler.transports.link import ConnectionLostError, Link, NoAnswerError, Sink

OUTPUT_LIMIT_BYTES = 16 * 1024 * 1024
"""Of one stream of one command. What prints more should write to a file and have it fetched."""

_KILL_GRACE_S = 10.0  # for the board to kill, in two stages, what outlasted its limit, and say so
_SESSION_LIMIT_S = 15.0  # for a session's directory to be made or removed
_SHOWN_CHARACTERS = 2000  # of a failed command's output in the error

_FULL = re.compile("No space|quota|too large|size limit", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Answer = TypeVar("Answer")
Control: TypeAlias = Callable[[str, float], tuple[str, str]]


class PosixTransport:
    """Implements :class:`~profiler.transports.base.Transport`.

    What can be repeated without harm (everything but ``run``) survives a lost connection: it is
    restored and the call repeated until the link's patience ends, so that such a call may take that
    much longer than its ``timeout_s``. A command whose connection is lost under way is not run
    again, since it may have had its effect.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._client = ClientLock()
        self._directory: str | None = None

    @property
    def name(self) -> str:
        return self._link.name

    @property
    def directory(self) -> str:
        if self._directory is None:
            raise BoardUnreachable(f"{self.name}: not connected")
        return self._directory

    def connect(self) -> None:
        if self._directory is not None:
            return
        try:
            self._open_link()
            self._client.acquire()
            self._open_session()
        except BaseException:
            self.close()
            raise

    def put(self, local: Path, remote: str, *, timeout_s: float, executable: bool = False) -> None:
        """Also raises :class:`OSError` if ``local`` cannot be read."""
        with local.open("rb") as source:
            size_bytes = os.fstat(source.fileno()).st_size
            script = scripts.put(
                self.directory,
                _checked_path(remote),
                token=secrets.token_hex(8),
                size_bytes=size_bytes,
                executable=executable,
            )

            def attempt(limit_s: float) -> _Finished:
                source.seek(0)
                return self._execute(script, limit_s, source=source)

            finished = self._transfer(f"putting {remote!r}", attempt, timeout_s)
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
        """Also raises :class:`OSError` if ``local`` cannot be written."""
        script = scripts.get(self.directory, _checked_path(remote))
        handle, part = tempfile.mkstemp(prefix=".get.", dir=local.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
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
        """The board itself ends the command's process group at the time limit, even if nobody is
        connected any more. Children that the command leaves behind are ended with it."""
        command = shlex.join(argv)
        job = f"run-{secrets.token_hex(8)}"
        script = scripts.run(
            self.directory,
            job,
            _checked_words(argv),
            _checked_environment(environment),
            time_limit_s=timeout_s,
        )

        def attempt(_limit_s: float) -> _Finished:
            return self._execute(script, timeout_s + _KILL_GRACE_S)

        try:
            finished = self._repeat(attempt, timeout_s, again=lambda lost: not lost.started)
        except _OutputLimitError:
            self._control(scripts.stop(self.directory, job), _SESSION_LIMIT_S)
            raise BoardCommandFailed(
                f"{self.name}: {command} printed more than {OUTPUT_LIMIT_BYTES} bytes and was"
                " ended; let it write to a file"
            ) from None
        except ConnectionLostError as lost:
            if not lost.started:
                raise self._gave_up(lost) from lost
            raise BoardUnreachable(
                f"{self.name}: the connection was lost while {command} ran ({lost}); it was not run"
                " again because it may have had its effect; the board ends it at its time limit"
            ) from lost
        stderr, found, state = finished.stderr.rpartition(f"\n{job} ")
        if not found:
            raise self._refused(f"running {command}", finished)
        if state.strip() == "vanished":
            raise BoardCommandFailed(
                f"{self.name}: {command} could not be started, or was killed from outside"
                + _quoted(stderr)
            )
        if state.strip() == "timed-out":
            raise BoardCommandFailed(
                f"{self.name}: {command} did not finish within {timeout_s:g} s and was ended"
            )
        exit_code = int(state.strip().removeprefix("exit-"))
        if check and exit_code != 0:
            said = (stderr.strip() or finished.stdout.strip())[-_SHOWN_CHARACTERS:]
            raise BoardCommandFailed(
                f"{self.name}: {command} exited with {exit_code}" + (f": {said}" if said else "")
            )
        return CommandResult(command, exit_code, finished.stdout, stderr)

    def start(
        self, argv: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> PosixDetachedCommand:
        job = f"job-{secrets.token_hex(8)}"
        words, variables = _checked_words(argv), _checked_environment(environment)
        self._control(scripts.start(self.directory, job, words, variables), timeout_s)
        return PosixDetachedCommand(
            name=f"{self.name}: {shlex.join(argv)}",
            directory=self.directory,
            job=job,
            control=self._control,
        )

    def close(self) -> None:
        directory, self._directory = self._directory, None
        cleaned = False
        try:
            if directory is not None:
                parent = posixpath.dirname(directory)
                script = scripts.remove_sessions(parent, [self._client.token])
                patience_s = min(self._link.patience_s, _SESSION_LIMIT_S)
                self._control(script, _SESSION_LIMIT_S, patience_s=patience_s)
                cleaned = True
        except ProfilerError:
            return  # the board is gone; a later session finds the leftovers by the lock file
        finally:
            self._client.release(cleaned=cleaned)
            self._link.close()

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

    def _open_link(self) -> None:
        try:
            self._repeat(lambda _limit_s: None, 0.0)
        except ConnectionLostError as lost:
            raise self._gave_up(lost) from lost

    def _open_session(self) -> None:
        listing, _ = self._control(
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
        if abandoned:
            parent = posixpath.dirname(self._directory)
            self._control(scripts.remove_sessions(parent, abandoned), _SESSION_LIMIT_S)
            for token in abandoned:
                forget(token)

    def _control(
        self,
        script: str,
        timeout_s: float,
        *,
        what: str = "keeping the session",
        patience_s: float | None = None,
    ) -> tuple[str, str]:
        """What a short, repeatable script of our own prints on standard output and error."""

        def attempt(limit_s: float) -> _Finished:
            return self._execute(script, limit_s)

        try:
            finished = self._repeat(attempt, timeout_s, patience_s=patience_s)
        except ConnectionLostError as lost:
            raise self._gave_up(lost) from lost
        except _OutputLimitError:
            raise BoardCommandFailed(
                f"{self.name}: there are more than {OUTPUT_LIMIT_BYTES} bytes of output; let the"
                " command write to a file"
            ) from None
        if finished.exit_code != 0:
            raise self._refused(what, finished)
        return finished.stdout, finished.stderr

    def _execute(
        self,
        script: str,
        limit_s: float,
        *,
        source: BinaryIO | None = None,
        out: Sink | None = None,
    ) -> _Finished:
        """Collects what no sink was given for."""
        collected, errors = _Collector(), _Collector()
        exit_code = self._link.execute(
            script, timeout_s=limit_s, source=source, out=out or collected, err=errors
        )
        return _Finished(exit_code, collected.text, errors.text)

    def _fetch(self, script: str, remote: str, stream: BinaryIO, timeout_s: float) -> None:
        def attempt(limit_s: float) -> _Finished:
            stream.seek(0)
            stream.truncate()
            return self._execute(script, limit_s, out=stream.write)

        finished = self._transfer(f"getting {remote!r}", attempt, timeout_s)
        reason, size_bytes = _split_report(finished.stderr, "size")
        if finished.exit_code != 0 or size_bytes != stream.tell():
            raise BoardCommandFailed(
                f"{self.name}: cannot get {remote!r} from {self.directory}: {reason}"
            )
        stream.flush()
        os.fsync(stream.fileno())
        os.fchmod(stream.fileno(), 0o644)

    def _transfer(
        self, what: str, attempt: Callable[[float], _Finished], timeout_s: float
    ) -> _Finished:
        try:
            finished = self._repeat(
                attempt, timeout_s, again=lambda lost: not isinstance(lost, NoAnswerError)
            )
        except NoAnswerError:
            raise BoardCommandFailed(
                f"{self.name}: {what} did not finish within {timeout_s:g} s"
            ) from None
        except ConnectionLostError as lost:
            raise self._gave_up(lost) from lost
        if finished.exit_code == scripts.DIRECTORY_GONE:
            raise self._refused(what, finished)
        return finished

    def _repeat(
        self,
        attempt: Callable[[float], Answer],
        timeout_s: float,
        *,
        again: Callable[[ConnectionLostError], bool] = lambda _lost: True,
        patience_s: float | None = None,
    ) -> Answer:
        """``attempt`` with a connection, repeated while that gets lost and comes back within the
        patience; it is told how many seconds it has. Raises the last
        :class:`ConnectionLostError`."""
        if patience_s is None:
            patience_s = self._link.patience_s
        overall = Deadline(timeout_s + patience_s)
        restored_by = Deadline(patience_s)

        def once() -> Answer:
            nonlocal restored_by
            self._link.open(timeout_s=restored_by.remaining_s)
            try:
                return attempt(min(timeout_s, overall.remaining_s))
            except ConnectionLostError:
                restored_by = Deadline(patience_s)
                raise

        def give_up(state: RetryCallState) -> bool:
            return min(restored_by.remaining_s, overall.remaining_s) <= state.upcoming_sleep

        trials = Retrying(
            retry=retry_if_exception(
                lambda error: isinstance(error, ConnectionLostError) and again(error)
            ),
            wait=wait_random_exponential(multiplier=0.2, max=4.0),
            stop=give_up,
            reraise=True,
        )
        return trials(once)

    def _gave_up(self, lost: ConnectionLostError) -> BoardUnreachable:
        if self._link.patience_s == 0.0:
            return BoardUnreachable(f"{self.name}: {lost}")
        return BoardUnreachable(
            f"{self.name}: {lost}; tried again for {self._link.patience_s:g} s; check that the"
            " board is powered and on the network"
        )

    def _refused(self, what: str, finished: _Finished) -> BoardCommandFailed:
        if finished.exit_code == scripts.DIRECTORY_GONE:
            return BoardCommandFailed(
                f"{self.name}: {what}: the working directory {self._directory} is gone from the"
                " board, which was restarted or cleaned meanwhile"
            )
        return BoardCommandFailed(
            f"{self.name}: {what} failed with exit code {finished.exit_code}"
            + _quoted(finished.stderr)
        )


class PosixDetachedCommand:
    """Implements :class:`~profiler.transports.base.DetachedCommand`."""

    def __init__(self, *, name: str, directory: str, job: str, control: Control) -> None:
        self._name = name
        self._directory = directory
        self._job = job
        self._control = control

    def poll(self, *, timeout_s: float) -> DetachedStatus:
        """Raises :class:`~profiler.errors.BoardCommandFailed` if it is gone without an exit code,
        because the board was restarted or ran out of memory."""
        text, _ = self._control(scripts.poll(self._directory, self._job), timeout_s)
        state = text.strip()
        if state == "running":
            return DetachedStatus(None)
        if state == "vanished":
            raise BoardCommandFailed(
                f"{self._name}: gone without an exit code; it was killed, or the board restarted"
            )
        return DetachedStatus(int(state.removeprefix("exit-")))

    def output(self, *, timeout_s: float) -> tuple[str, str]:
        return self._control(scripts.output(self._directory, self._job), timeout_s)

    def stop(self, *, timeout_s: float) -> None:
        self._control(scripts.stop(self._directory, self._job), timeout_s)


@dataclass(frozen=True)
class _Finished:
    """How a script ended."""

    exit_code: int
    stdout: str
    stderr: str


class _OutputLimitError(Exception):
    """A stream had more than :data:`OUTPUT_LIMIT_BYTES`."""


class _Collector:
    """Collects output, and refuses to fill this computer's memory with it."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __call__(self, chunk: bytes) -> None:
        if len(self._data) + len(chunk) > OUTPUT_LIMIT_BYTES:
            raise _OutputLimitError
        self._data += chunk

    @property
    def text(self) -> str:
        return self._data.decode(errors="replace")


def _quoted(output: str) -> str:
    said = output.strip()[-_SHOWN_CHARACTERS:]
    return f": {said}" if said else ""


def _split_report(stderr: str, word: str) -> tuple[str, int | None]:
    """The last reason that tools gave, and the number in our own last line ``word NUMBER``."""
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

"""A board's shell. Repeatable scripts survive a lost connection; final failures are explained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential

from devices.errors import BoardCommandFailed, BoardUnreachable, SessionGone, SetupMissing
from profiler.transports.deadline import Deadline
from profiler.transports.link import ConnectionLostError, Link, NoAnswerError, Sink
from profiler.transports.scripts import DIRECTORY_GONE, SETUP_MISSING

OUTPUT_LIMIT_BYTES = 16 * 1024 * 1024
"""Limit of one stream of one command. A command that prints more should write to a file."""

_SHOWN_CHARACTERS = 2000  # of the output of a failed script or command

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Finished:
    """How a script ended."""

    exit_code: int
    stdout: str
    stderr: str


class OutputLimitError(Exception):
    """A stream had more than :data:`OUTPUT_LIMIT_BYTES`."""


class Shell:
    """Runs scripts over a link."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def name(self) -> str:
        return self._link.name

    @property
    def patience_s(self) -> float:
        return self._link.patience_s

    def connect(self) -> None:
        """Connect. Raises :class:`~devices.errors.BoardUnreachable`."""
        try:
            self.repeat(lambda _limit_s: None, 0.0)
        except ConnectionLostError as lost:
            raise self.gave_up(lost) from lost

    def close(self) -> None:
        self._link.close()

    def execute(
        self,
        script: str,
        limit_s: float,
        *,
        source: BinaryIO | None = None,
        out: Sink | None = None,
    ) -> Finished:
        """Run a script once, and collect the output for which no sink is given. Raises
        :class:`OutputLimitError` and what the link raises."""
        collected, errors = _Collector(), _Collector()
        exit_code = self._link.execute(
            script, timeout_s=limit_s, source=source, out=out or collected, err=errors
        )
        return Finished(exit_code, collected.text, errors.text)

    def repeat(
        self,
        attempt: Callable[[float], Answer],
        timeout_s: float,
        *,
        again: Callable[[ConnectionLostError], bool] = lambda _lost: True,
        patience_s: float | None = None,
    ) -> Answer:
        """Call ``attempt`` with a connection, and again if a lost connection comes back in time.

        ``attempt`` gets the number of seconds that it has. ``patience_s`` replaces the link's
        patience. Raises the last :class:`ConnectionLostError`.
        """
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

    def control(
        self,
        script: str,
        timeout_s: float,
        *,
        what: str = "keeping the session",
        patience_s: float | None = None,
    ) -> tuple[str, str]:
        """Run a short, repeatable script and return its standard output and error. Raises
        :class:`~devices.errors.JoulewrightError`."""

        def attempt(limit_s: float) -> Finished:
            return self.execute(script, limit_s)

        try:
            finished = self.repeat(attempt, timeout_s, patience_s=patience_s)
        except ConnectionLostError as lost:
            raise self.gave_up(lost) from lost
        except OutputLimitError:
            raise BoardCommandFailed(
                f"{self.name}: the output has more than {OUTPUT_LIMIT_BYTES} bytes",
                remedy="let the command write to a file",
            ) from None
        if finished.exit_code != 0:
            raise self.refused(what, finished)
        return finished.stdout, finished.stderr

    def transfer(
        self, what: str, attempt: Callable[[float], Finished], timeout_s: float
    ) -> Finished:
        """Run an attempt that moves a file. It is not repeated when it was too slow, and the caller
        interprets its exit code."""
        try:
            finished = self.repeat(
                attempt, timeout_s, again=lambda lost: not isinstance(lost, NoAnswerError)
            )
        except NoAnswerError:
            raise BoardCommandFailed(
                f"{self.name}: {what} did not finish within {timeout_s:g} s"
            ) from None
        except ConnectionLostError as lost:
            raise self.gave_up(lost) from lost
        if finished.exit_code == DIRECTORY_GONE:
            raise self.refused(what, finished)
        return finished

    def gave_up(self, lost: ConnectionLostError) -> BoardUnreachable:
        if self.patience_s == 0.0:
            return BoardUnreachable(f"{self.name}: {lost}")
        return BoardUnreachable(
            f"{self.name}: {lost}; tried again for {self.patience_s:g} s",
            remedy="check that the board is powered and on the network",
        )

    def refused(self, what: str, finished: Finished) -> BoardCommandFailed | SetupMissing:
        if finished.exit_code == SETUP_MISSING:
            return SetupMissing(f"{self.name}: {finished.stderr.strip()}")
        if finished.exit_code == DIRECTORY_GONE:
            return SessionGone(
                "the working directory no longer exists on the board, which was restarted or"
                " cleaned meanwhile",
                operation=f"{self.name}: {what}",
            )
        return BoardCommandFailed(
            f"{self.name}: {what} failed with exit code {finished.exit_code}"
            + quoted(finished.stderr)
        )


class _Collector:
    """Collects output up to a limit, so that it cannot fill this computer's memory."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __call__(self, chunk: bytes) -> None:
        if len(self._data) + len(chunk) > OUTPUT_LIMIT_BYTES:
            raise OutputLimitError
        self._data += chunk

    @property
    def text(self) -> str:
        return self._data.decode(errors="replace")


def quoted(output: str) -> str:
    """The end of a command's output, to append to the text of an error."""
    shown = output.strip()[-_SHOWN_CHARACTERS:]
    return f": {shown}" if shown else ""

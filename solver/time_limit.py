"""``TimeLimit``: one limit on wall time, divided among the phases of a command.

Engines run in processes and threads of their own and can be ended at any time. Everything else is
Python in the calling thread. Its loops call :func:`check_time`, which raises :class:`OutOfTime`
after the limit that the caller *enforces*. A phase that can return something unfinished catches it;
otherwise the phase's caller does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from typing import Self

# Shortest limit of a search, which finds only what takes no time.
_LEAST_S = 0.01


class OutOfTime(Exception):
    """The enforced time limit has passed."""


_end: ContextVar[float] = ContextVar("end of the enforced time limit", default=inf)


def check_time() -> None:
    """Raise :class:`OutOfTime` if the enforced time limit has passed."""
    if time.monotonic() >= _end.get():
        raise OutOfTime


@dataclass(frozen=True)
class TimeLimit:
    """A limit on wall time that passes at ``end``, on ``time.monotonic``; infinite for none."""

    end: float = inf

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """A limit that passes in ``seconds``; None for no limit."""
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until the limit passes, at least 0."""
        return max(0.0, self.end - time.monotonic())

    @property
    def seconds(self) -> float | None:
        """Seconds until the limit passes, as an option of a search: above 0, None for no limit."""
        return None if self.end == inf else max(_LEAST_S, self.left_s)

    @property
    def has_passed(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self.end

    def part(self, share: float) -> TimeLimit:
        """A limit on ``share`` of the time that is left."""
        return TimeLimit(self.end - (1 - share) * self.left_s) if self.end < inf else self

    def at_most(self, seconds: float) -> TimeLimit:
        """This limit, or one that passes in ``seconds`` if that is earlier."""
        return TimeLimit(min(self.end, time.monotonic() + seconds))

    def reserving(self, seconds: float) -> TimeLimit:
        """A limit that leaves ``seconds`` before this one passes."""
        return TimeLimit(self.end - seconds)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Make :func:`check_time` raise once this limit, or one enforced around it, has passed."""
        before = _end.set(min(self.end, _end.get()))
        try:
            yield
        finally:
            _end.reset(before)


NO_LIMIT = TimeLimit()

"""Attempts that failed: which are tried again, and what is kept of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from campaigns.design.cells import Cell
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import Beginning, Circumstances, Failure, Phase, ReplayPlace
from campaigns.running.outcome import Failed

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


@dataclass(frozen=True)
class Shortfall:
    """What a call could not do, and the exit code of its reason."""

    what: str
    reason: str
    exit_code: int


@dataclass
class Attempts:
    """Failed attempts of a call. Each thing is tried at most ``most`` times."""

    directory: CampaignDirectory
    most: int
    shortfalls: list[Shortfall] = field(default_factory=list)
    _tried: Counter[Hashable] = field(default_factory=Counter)

    def number(self, key: Hashable) -> int:
        """Number of the next attempt, from 1."""
        return self._tried[key] + 1

    def pause_s(self, key: Hashable) -> float:
        """How long to wait before the next attempt, longer after each."""
        tried = max(1, self._tried[key])
        return float(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 4 ** (tried - 1)))

    def fail(
        self,
        key: Hashable,
        of: Cell | str,
        phase: Phase,
        failed: Failed,
        began: Beginning,
        place: ReplayPlace | None = None,
    ) -> bool:
        """Keep a failed attempt.

        Args:
            key: What was tried.
            of: The cell, or the name of the setting whose profile it was.
            phase: What was done.
            failed: Why it failed.
            began: When it began.
            place: Which replay it was, if it was one.

        Returns:
            Whether it is tried again.

        Raises:
            OSError: The failure cannot be written.
        """
        self._tried[key] += 1
        again = failed.may_pass and self._tried[key] < self.most
        failure = Failure(
            phase=phase,
            replay=place,
            reason=failed.reason,
            exit_code=failed.exit_code,
            is_last=not again,
            circumstances=Circumstances.since(began),
        )
        self.directory.add_failure(of, failure)
        if not again:
            self.shortfalls.append(Shortfall(f"{phase} of {of}", failed.reason, failed.exit_code))
        return again

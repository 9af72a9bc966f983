"""Where profiles, schedules, replays and all other results are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Results:
    """The directory of results, and the parts of it. None of them is made before it is written to.

    The default is relative: ``results`` in the working directory.
    """

    root: Path = Path("results")

    @property
    def profiles(self) -> Path:
        """Measured profiles, ``NAME.yaml`` each."""
        return self.root / "profiles"

    @property
    def campaigns(self) -> Path:
        """Raw trials, a directory for each run of the profiler."""
        return self.root / "campaigns"

    @property
    def schedules(self) -> Path:
        """Schedules, each beside its costed graph."""
        return self.root / "schedules"

    @property
    def sweep(self) -> Path:
        """The table, schedules and pictures of a sweep."""
        return self.root / "sweep"

    @property
    def replays(self) -> Path:
        """Replays, a directory for each schedule on each board."""
        return self.root / "replays"

    @property
    def exports(self) -> Path:
        """C projects and traces."""
        return self.root / "export"

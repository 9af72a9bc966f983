"""Directories of profiles, schedules, replays and all other results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Results:
    """The directory of results and its parts, each created when it is first written to.

    The default is ``results`` in the working directory.
    """

    root: Path = Path("results")

    @property
    def profiles(self) -> Path:
        """Measured profiles, each ``NAME.yaml``."""
        return self.root / "profiles"

    @property
    def networks(self) -> Path:
        """Networks that were exported from their source: ``FILE.FUNCTION.pt2`` in a directory of
        each source file."""
        return self.root / "networks"

    @property
    def runs(self) -> Path:
        """Raw trials, a directory for each run of the profiler."""
        return self.root / "runs"

    @property
    def campaigns(self) -> Path:
        """Campaigns, a directory for each. Before these existed, it held what is in ``runs``."""
        return self.root / "campaigns"

    @property
    def checks(self) -> Path:
        """Checks of profiles, each ``DEVICE.TIME.json``."""
        return self.root / "checks"

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
    def tuned(self) -> Path:
        """Rounds of ``tune``, a directory for each schedule on each board."""
        return self.root / "tuned"

    @property
    def exports(self) -> Path:
        """C projects and traces."""
        return self.root / "export"

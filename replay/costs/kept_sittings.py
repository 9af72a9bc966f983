"""Sittings of a watched step that are kept, so that an interrupted watch goes on."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devices.documents.document import dump_json, read_json, write_atomically
from replay.costs.context import WatchedSitting

if TYPE_CHECKING:
    from pathlib import Path

    from devices.profile import DeviceProfile, ProfiledNetwork

# Hexadecimal digits of the key of kept sittings.
_DIGITS = 8
# What a sitting's file holds; those of other numbers are measured again.
_FORMAT = 4


@dataclass(frozen=True)
class KeptSittings:
    """Sittings of one network that are kept in a directory.

    Each is a file of its own, written as a whole when the sitting is over.

    Attributes:
        directory: the directory, which exists.
        key: digits that stand for the network, the profiled costs, and the steps of a sitting.
    """

    directory: Path
    key: str

    @classmethod
    def of(
        cls, directory: Path, network: ProfiledNetwork, profile: DeviceProfile, asked: str
    ) -> KeptSittings:
        """The sittings of a network in a directory.

        Args:
            directory: the directory.
            network: the network whose step is watched.
            profile: costs of its operations by themselves; sittings beside others do not count.
            asked: what else distinguishes one watch from another.
        """
        costs = (cost.model_dump_json() for cost in profile.operations)
        stated = (str(_FORMAT), network.model_dump_json(), str(profile.build), asked)
        question = "\n".join([*stated, *costs])
        return cls(directory, hashlib.sha256(question.encode()).hexdigest()[:_DIGITS])

    def find(self, way: str, number: int) -> WatchedSitting | None:
        """A finished sitting; None if there is none.

        Raises:
            DocumentError: its file is damaged.
        """
        file = self._file(way, number)
        return read_json(file, WatchedSitting) if file.exists() else None

    def keep(self, way: str, number: int, sitting: WatchedSitting) -> None:
        """Write a finished sitting."""
        write_atomically(self._file(way, number), dump_json(sitting))

    def _file(self, way: str, number: int) -> Path:
        words = re.sub(r"\W+", "-", way)
        return self.directory / f"{self.key}.{words}.{number}.json"

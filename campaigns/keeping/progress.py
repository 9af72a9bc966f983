"""Progress of a running campaign, for ``campaign status`` in another terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from devices.documents.document import (
    DocumentError,
    StrictModel,
    dump_json,
    read_json,
    write_atomically,
)
from devices.quantities import NonNegative, Size

_FILE = "progress.json"
_EVERY_S = 1.0


class BoardProgress(StrictModel):
    """The work of a campaign on one board: how much of it is done, and how much is left.

    ``finished`` of ``replays`` are done, as are ``solved`` of ``cells``; ``failed`` attempts were
    the last of their kind. ``activity`` is what it does now, since ``since_s`` seconds.
    ``waits_for`` says which other program has the board, if one has. ``given_up`` is why this call
    does nothing more with it. ``left_s`` is absent while no figure exists.
    """

    board: str
    cells: Size
    solved: Size
    replays: Size
    finished: Size
    failed: Size
    activity: str | None = None
    since_s: NonNegative | None = None
    waits_for: str | None = None
    given_up: str | None = None
    left_s: NonNegative | None = None


class CampaignProgress(StrictModel):
    """Progress of all boards (``campaign-progress/1``)."""

    schema_: Annotated[Literal["campaign-progress/1"], Field(alias="schema")] = (
        "campaign-progress/1"
    )
    boards: tuple[BoardProgress, ...]
    solving: tuple[str, ...] = ()


class ProgressFile:
    """The file in which a running campaign tells its progress, at most once a second."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self._next_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether a second has passed."""
        return time.monotonic() >= self._next_at

    def write(self, progress: CampaignProgress) -> None:
        """Write the progress. Raises :class:`OSError`."""
        write_atomically(self._path, dump_json(progress))
        self._next_at = time.monotonic() + _EVERY_S


def read_progress(directory: Path) -> CampaignProgress | None:
    """The last progress that a campaign told; None if it told none."""
    try:
        return read_json(directory / _FILE, CampaignProgress)
    except DocumentError:
        return None

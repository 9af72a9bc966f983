"""The directory of a campaign, from which ``campaign run`` goes on.

::

    campaign.yaml                       the campaign's file as given
    cells.json                          its cells and the levels that they name
    profiles/BOARD[.CONDITION].HASH.yaml    the profiles that costs are from
    cells/HASH/schedule.json            and schedule.graph.json
    cells/HASH/cell.json                what the method found; written last, it marks a solved cell
    cells/HASH/repetition-N.replay.json     the report of a replay, in full
    cells/HASH/repetition-N.json        its figures; written last, it marks a finished replay
    cells/HASH/control-N.json           the same of a control replay
    cells/HASH/failures.json            failed attempts; of profiles in failures/
    progress.json                       what the campaign does now
    tables/                             tables that are derived from all this

Every file is written completely or not at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from campaigns.design.cells import Cell, Design
from campaigns.keeping.records import Failure, Failures, Repetition, ReplayPlace, SolvedCell
from devices.claims.claim import LOCK
from devices.documents.document import DocumentError, dump_json, read_json, write_atomically
from devices.errors import InputError
from devices.replay import ReplayReport
from devices.results import Results
from replay.reporting.figures import remade_report
from solver.files.solved import read_solved, write_solved
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule

FILE, CELLS = "campaign.yaml", "cells.json"
TABLES = ("cells.csv", "cells.parquet", "replays.csv", "replays.parquet")
_CELL, _SCHEDULE, _FAILURES = "cell.json", "schedule.json", "failures.json"
_FIGURES = re.compile(r"(repetition|control)-\d+\.json")

FilesOfCells: TypeAlias = Mapping[str, frozenset[str]]
"""Names of files by the hash of their cell."""


@dataclass(frozen=True)
class Begun:
    """A campaign whose call begins: whether its cells are others than before, and their files."""

    is_new: bool
    files: FilesOfCells


@dataclass(frozen=True)
class CampaignDirectory:
    """The files of a campaign.

    Methods that write raise :class:`OSError` if a file cannot be written, and then change nothing.
    Methods that read raise :class:`~devices.documents.document.DocumentError` for a damaged file.
    """

    path: Path

    @property
    def profiles(self) -> Path:
        """Profiles that the costs of the cells are from."""
        return self.path / "profiles"

    @property
    def tables(self) -> Path:
        """Derived tables."""
        return self.path / "tables"

    def has_new_tables(self) -> bool:
        """Whether every table was written after the cells and all their records.

        The directory of a cell changes when a file in it is written.
        """
        try:
            oldest = min((self.tables / name).stat().st_mtime_ns for name in TABLES)
        except FileNotFoundError:
            return False
        changed = [(self.path / CELLS).stat().st_mtime_ns]
        changed += [cell.stat().st_mtime_ns for cell in os.scandir(self._cells)]
        return max(changed) <= oldest

    def design(self) -> Design:
        """The cells. Raises ``DocumentError`` if the directory is not that of a campaign."""
        file = self.path / CELLS
        if not file.is_file():
            raise DocumentError(
                f"{self.path}: not the directory of a campaign: {CELLS} is missing; give the name"
                " of a campaign that was run, or its directory"
            )
        return read_json(file, Design)

    def begin(self, text: str, design: Design) -> Begun:
        """Write the campaign's file and its cells, and remove what a killed process left."""
        files = self._without_unfinished()
        write_atomically(self.path / FILE, text)
        cells, file = dump_json(design), self.path / CELLS
        is_new = not file.is_file() or file.read_text() != cells
        if is_new:
            write_atomically(file, cells)
        return Begun(is_new, files)

    def _without_unfinished(self) -> FilesOfCells:
        """Remove files that a process was writing when it was killed; those of cells that stay."""
        files: dict[str, frozenset[str]] = {}
        for directory, _, names in os.walk(self.path):
            kept = []
            for name in names:
                if name.startswith(".") and name != LOCK:
                    Path(directory, name).unlink()
                else:
                    kept.append(name)
            parent, of_cell = os.path.split(directory)
            if parent == str(self._cells):
                files[of_cell] = frozenset(kept)
        return files

    def of(self, cell: Cell) -> Path:
        """Directory of a cell."""
        return self._cells / cell.hash

    @property
    def _cells(self) -> Path:
        return self.path / "cells"

    def files(self) -> FilesOfCells:
        """Names of the files that exist, by the hash of the cell; without those being written."""
        try:
            cells = [entry.path for entry in os.scandir(self._cells)]
        except FileNotFoundError:
            return {}
        return {os.path.basename(cell): frozenset(_names(cell)) for cell in cells}  # noqa: PTH119

    def schedule_file(self, cell: Cell) -> Path:
        """The schedule of a solved cell; its graph is beside it."""
        return self.of(cell) / _SCHEDULE

    def solved_file(self, cell: Cell) -> Path:
        """The record of a solved cell."""
        return self.of(cell) / _CELL

    def solved(self, cell: Cell) -> SolvedCell | None:
        """What a cell's method found; None if it is not solved yet."""
        file = self.solved_file(cell)
        return read_json(file, SolvedCell) if file.is_file() else None

    def schedule(self, cell: Cell) -> tuple[CostedGraph, Schedule]:
        """Graph and schedule of a solved cell; every figure that they state is checked."""
        return read_solved(self.schedule_file(cell))

    def has_schedule(self, cell: Cell, files: frozenset[str]) -> bool:
        """Whether a schedule was found for a cell, which has these ``files``."""
        if has_replay(files, ReplayPlace(repetition=0)):  # this is quicker than to read its record
            return True
        solved = self.solved(cell)
        return solved is not None and solved.has_schedule

    def keep_solved(self, graph: CostedGraph, schedule: Schedule, solved: SolvedCell) -> None:
        """Write what a cell's method found."""
        write_solved(self.schedule_file(solved.cell), graph, schedule)
        write_atomically(self.solved_file(solved.cell), dump_json(solved))

    def repetition_file(self, cell: Cell, place: ReplayPlace) -> Path:
        """The figures of a finished replay."""
        return self.of(cell) / _mark(place)

    def repetition(self, cell: Cell, place: ReplayPlace) -> Repetition | None:
        """The figures of a replay; None if it is not finished yet."""
        file = self.repetition_file(cell, place)
        return read_json(file, Repetition) if file.is_file() else None

    def finished_replay(self, cell: Cell) -> Repetition | None:
        """The figures of any one finished replay of a cell; None if there is none yet."""
        names = filter(_FIGURES.fullmatch, _names(str(self.of(cell))))
        name = min(names, default=None)
        return None if name is None else read_json(self.of(cell) / name, Repetition)

    def replay_file(self, cell: Cell, place: ReplayPlace) -> Path:
        """The report of a finished replay (``replay/1``)."""
        return self.of(cell) / f"{place.stem}.replay.json"

    def checked_report(
        self, cell: Cell, place: ReplayPlace, graph: CostedGraph, schedule: Schedule
    ) -> ReplayReport:
        """The report of a finished replay of this schedule, every figure of which is checked.

        Raises:
            InputError: It states a figure that does not follow from the others.
        """
        file = self.replay_file(cell, place)
        report, wrong = remade_report(read_json(file, ReplayReport), graph, schedule)
        for sentence in wrong:
            raise InputError(f"{file}: {sentence}")
        return report

    def keep_repetition(self, repetition: Repetition, report: ReplayReport) -> None:
        """Write the report of a replay and its figures."""
        cell = repetition.cell
        place = ReplayPlace(repetition=repetition.number, control=repetition.control)
        write_atomically(self.replay_file(cell, place), dump_json(report))
        write_atomically(self.repetition_file(cell, place), dump_json(repetition))

    def failures(self, of: Cell | str) -> tuple[Failure, ...]:
        """Failed attempts of a cell, or of the profile of a setting by its name."""
        return self._kept_failures(of).failures

    def failures_since_profile(self, setting: str) -> tuple[Failure, ...]:
        """Failed attempts at the profile of a setting since one was made."""
        kept = self._kept_failures(setting)
        return kept.failures[kept.mended :]

    def add_failure(self, of: Cell | str, failure: Failure) -> None:
        """Keep a failed attempt."""
        kept = self._kept_failures(of)
        self._keep_failures(of, kept.model_copy(update={"failures": (*kept.failures, failure)}))

    def mend_profile(self, setting: str) -> None:
        """Note that the profile of a setting has been made."""
        kept = self._kept_failures(setting)
        if kept.mended < len(kept.failures):
            mended = {"mended": len(kept.failures)}
            self._keep_failures(setting, kept.model_copy(update=mended))

    def _kept_failures(self, of: Cell | str) -> Failures:
        file, name = self._failures_file(of), of if isinstance(of, str) else of.hash
        return read_json(file, Failures) if file.is_file() else Failures(of=name, failures=())

    def _keep_failures(self, of: Cell | str, failures: Failures) -> None:
        write_atomically(self._failures_file(of), dump_json(failures))

    def _failures_file(self, of: Cell | str) -> Path:
        if isinstance(of, str):
            return self.path / "failures" / f"{of}.json"
        return self.of(of) / _FAILURES


def campaign_directory(name: str, results: Results) -> Path:
    """The directory of a campaign that is named by its name or its path."""
    path = Path(name)
    return path if len(path.parts) > 1 or path.is_dir() else results.campaigns / name


def is_solved(files: frozenset[str]) -> bool:
    """Whether a cell with these files is solved."""
    return _CELL in files


def has_replay(files: frozenset[str], place: ReplayPlace) -> bool:
    """Whether a cell with these files has finished a replay."""
    return _mark(place) in files


def names_of_replays(repetitions: int, *, control: bool) -> frozenset[str]:
    """Names of the files of a cell that mark its replays, or its control replays, as finished."""
    places = (ReplayPlace(repetition=number, control=control) for number in range(repetitions))
    return frozenset(map(_mark, places))


def count_replays(cells: Collection[frozenset[str]], repetitions: int) -> int:
    """Number of a board's finished replays, with at most one control replay for each repetition.

    Args:
        cells: The files of each of its cells.
        repetitions: How often the campaign asks for each schedule to be run.
    """
    finished = 0
    for number in range(repetitions):
        run, control = (ReplayPlace(repetition=number, control=again) for again in (False, True))
        finished += sum(has_replay(files, run) for files in cells)
        finished += any(has_replay(files, control) for files in cells)
    return finished


def has_failures(files: frozenset[str]) -> bool:
    """Whether an attempt at a cell with these files has failed."""
    return _FAILURES in files


def final_failure(
    failures: Iterable[Failure], files: frozenset[str], repetitions: int
) -> Failure | None:
    """The last failure that the campaign gave up on, among those of what is still missing.

    Args:
        failures: Failed attempts at a cell, and at the profile that it waits for.
        files: The files of the cell.
        repetitions: How often the campaign asks for its schedule to be run.
    """
    final = None
    for failure in failures:
        place = failure.replay
        is_asked = place is None or place.repetition < repetitions
        is_mended = is_solved(files) if place is None else has_replay(files, place)
        if failure.is_last and is_asked and not is_mended:
            final = failure
    return final


def _mark(place: ReplayPlace) -> str:
    return f"{place.stem}.json"


def _names(directory: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                yield entry.name

"""Results of a campaign, as reports and comparisons read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from campaigns.design.cells import Cell, Design, is_design_of
from campaigns.design.file import CampaignFile
from campaigns.design.settings import Setting
from campaigns.keeping.checks import require_summary_of_replay, require_summary_of_schedule
from campaigns.keeping.directory import (
    CELLS,
    FILE,
    CampaignDirectory,
    final_failure,
    has_failures,
    has_replay,
    is_solved,
)
from campaigns.keeping.records import Failure, Repetition, ReplayPlace, SolvedCell
from devices.documents.document import read_json, read_yaml
from devices.errors import InputError
from devices.profile import DeviceProfile
from devices.replay import ReplayReport
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule

State: TypeAlias = Literal["done", "no schedule", "failed", "waiting"]


@dataclass(frozen=True)
class CellResult:
    """A cell with everything that is known of it.

    ``solved`` is None before its schedule was searched. ``repetitions`` are the finished replays by
    number, ``controls`` the finished control replays; both are empty if the board is a profile.
    ``failures`` are all failed attempts; before it is solved, after those at the profile of its
    board since one was made.
    ``final_failure`` is the last one that the campaign gave up on, of those whose schedule or
    replay is still missing.
    ``wanted_repetitions`` is how many the campaign asks for.
    """

    directory: CampaignDirectory
    cell: Cell
    setting: Setting
    solved: SolvedCell | None
    repetitions: tuple[Repetition, ...]
    controls: tuple[Repetition, ...]
    failures: tuple[Failure, ...]
    final_failure: Failure | None
    wanted_repetitions: int

    @property
    def state(self) -> State:
        """``done``, ``no schedule`` (its method found none), ``failed`` or ``waiting``."""
        if self.solved is not None and not self.solved.has_schedule:
            return "no schedule"
        if self.solved is not None and len(self.repetitions) >= self.wanted_repetitions:
            return "done"
        return "waiting" if self.final_failure is None else "failed"

    @property
    def replays(self) -> tuple[Repetition, ...]:
        """All finished replays, controls included."""
        return *self.repetitions, *self.controls

    def schedule(self) -> tuple[CostedGraph, Schedule]:
        """Graph and schedule of a solved cell."""
        return self.directory.schedule(self.cell)

    def profile(self) -> DeviceProfile | None:
        """Profile that the costs of a solved cell are from."""
        if self.solved is None or self.solved.profile is None:
            return self.setting.profile
        return read_yaml(self.directory.path / self.solved.profile, DeviceProfile)

    def report(self, repetition: Repetition) -> ReplayReport:
        """Full report of one of the replays."""
        place = ReplayPlace(repetition=repetition.number, control=repetition.control)
        return read_json(self.directory.replay_file(self.cell, place), ReplayReport)


@dataclass(frozen=True)
class CampaignResults:
    """A campaign as it is now: its file, its cells and what is known of each.

    A running campaign adds to it; every file that is there is complete. ``file`` is the campaign's
    file, as it was given.
    """

    directory: CampaignDirectory
    file: CampaignFile
    design: Design
    cells: tuple[CellResult, ...]

    @property
    def name(self) -> str:
        """Name of the campaign."""
        return self.design.name


def read_campaign(path: Path) -> CampaignResults:
    """Read a campaign from its directory.

    Args:
        path: The directory, ``results/campaigns/NAME``.

    Returns:
        All cells, in the order of the campaign's levels, with what is known of them now.

    Raises:
        DocumentError: The directory is not that of a campaign, or a file in it is damaged.
        InputError: A file states a figure that does not follow from the others, or the campaign's
            file is not that of its cells.
    """
    directory = CampaignDirectory(path)
    design = directory.design()
    file = read_yaml(path / FILE, CampaignFile)
    if not is_design_of(design, file):
        raise InputError(
            f"{path}: {FILE} and {CELLS} are of different calls of campaign run",
            remedy="run the campaign again",
        )
    files = directory.files()
    at_profiles = {
        setting.name: directory.failures_since_profile(setting.name)
        for setting in design.settings
        if setting.is_run
    }
    found = []
    for cell in design.cells:
        names = files.get(cell.hash, frozenset())
        setting = design.setting_of(cell)
        wanted = design.repetitions_of(cell)
        solved = directory.solved(cell) if is_solved(names) else None
        repetitions, controls = (
            _replays(directory, cell, names, wanted, control=control) for control in (False, True)
        )
        if solved is not None:
            _require_true_records(directory, cell, solved, repetitions | controls)
        failures = (
            *(at_profiles.get(setting.name, ()) if solved is None else ()),
            *(directory.failures(cell) if has_failures(names) else ()),
        )
        found.append(
            CellResult(
                directory=directory,
                cell=cell,
                setting=setting,
                solved=solved,
                repetitions=tuple(repetitions.values()),
                controls=tuple(controls.values()),
                failures=failures,
                final_failure=final_failure(failures, names, wanted),
                wanted_repetitions=wanted,
            )
        )
    return CampaignResults(directory, file, design, tuple(found))


def _require_true_records(
    directory: CampaignDirectory,
    cell: Cell,
    solved: SolvedCell,
    replays: Mapping[ReplayPlace, Repetition],
) -> None:
    graph, schedule = directory.schedule(cell)
    require_summary_of_schedule(cell, directory.solved_file(cell), solved, graph, schedule)
    for place, record in replays.items():
        report = directory.checked_report(cell, place, graph, schedule)
        file = directory.repetition_file(cell, place)
        require_summary_of_replay(cell, place, file, record, report)


def _replays(
    directory: CampaignDirectory,
    cell: Cell,
    names: frozenset[str],
    wanted: int,
    *,
    control: bool,
) -> dict[ReplayPlace, Repetition]:
    places = (ReplayPlace(repetition=number, control=control) for number in range(wanted))
    read = {
        place: directory.repetition(cell, place) for place in places if has_replay(names, place)
    }
    return {place: record for place, record in read.items() if record is not None}

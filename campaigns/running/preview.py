"""What is left of a campaign, and what that takes, without touching a board."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from campaigns.design.cells import Cell
from campaigns.design.opening import OpenedCampaign
from campaigns.design.settings import Setting
from campaigns.keeping.directory import (
    CampaignDirectory,
    FilesOfCells,
    is_solved,
    names_of_replays,
)
from campaigns.running.estimates import basis_of, nominal_energy_j, wear_at_most
from campaigns.running.lanes import settings_by_board
from campaigns.running.order import control_of
from campaigns.running.profiling import ProfileJob, estimate_profile, known_profile
from campaigns.running.replay_estimates import ReplayEstimate, ReplayEstimates
from devices.description import DeviceDescription
from devices.errors import JoulewrightError
from devices.profile import DeviceProfile, EnergySource
from devices.results import Results
from devices.wear import Wear
from replay.runs import (
    STEPS_PER_DAY,
    Subject,
    expected_wear,
    planned_execution,
    training_step_of,
)


@dataclass(frozen=True)
class BoardPreview:
    """What is left for a board under a condition, or for a profile.

    ``search_s`` is the most that the searches may take, one after the other. ``profile_s`` is None
    if a profile is known, or is what the board is; ``profile_j`` are the joules of measuring it.
    ``replays`` are those of cells that have or may get a schedule; ``controls`` of them are control
    replays, all of a board under one of its conditions. While it is not known which cell they are
    of, each counts as the dearest of the board. ``replay_s``, ``energy_j`` and
    ``most_written_bytes`` are of all replays together, None for a profile. They are estimates:
    ``basis`` says what from, and ``reason`` why ``energy_j`` of a board is None. No replays write
    more than ``most_written_bytes`` unless some fail and are tried again.
    ``profile_written_bytes`` are those of measuring the storage, and the most by watched steps.

    ``wear`` is that of the schedule that writes the most in a step, among those that are known;
    None if none of them pages. ``most_wear`` is what no schedule exceeds that is still to be found;
    None if none may page.
    """

    setting: str
    cells: int
    unsolved: int
    search_s: float
    profile_s: float | None
    profile_j: float | None
    profile_written_bytes: int | None
    replays: int
    controls: int
    replay_s: float | None
    energy_j: float | None
    energy_source: EnergySource | None
    most_written_bytes: int | None
    basis: str | None
    reason: str | None
    wear: Wear | None
    most_wear: Wear | None


@dataclass(frozen=True)
class _Board:
    """A board under a condition, with its cells and what is known of them."""

    setting: Setting
    description: DeviceDescription
    cells: tuple[Cell, ...]
    job: ProfileJob
    profile: DeviceProfile | None
    estimates: ReplayEstimates


@dataclass(frozen=True)
class _Left:
    """Replays that are left: ``count`` of them, each of which takes what ``replay`` says."""

    count: int
    replay: ReplayEstimate


def preview_campaign(
    opened: OpenedCampaign, directory: CampaignDirectory, results: Results
) -> tuple[BoardPreview, ...]:
    """Preview what ``run_campaign`` does.

    Args:
        opened: The campaign.
        directory: Its directory, which need not exist.
        results: Where runs of the profiler are looked for.

    Raises:
        InputError: A network cannot be built, or a board cannot be measured as asked.
    """
    preview = _Preview(opened, directory, results, directory.files())
    settings = opened.design.settings
    boards = {each.name: board for each in settings if (board := preview.board(each)) is not None}
    controls: dict[str, _Left] = {}
    for conditions in settings_by_board(settings).values():
        of_board = [boards[each.name] for each in conditions if each.name in boards]
        controls.update(preview.controls(of_board))
    return tuple(
        preview.of(setting, boards.get(setting.name), controls.get(setting.name))
        for setting in settings
    )


@dataclass(frozen=True)
class _Preview:
    """A campaign of which these files exist."""

    opened: OpenedCampaign
    directory: CampaignDirectory
    results: Results
    files: FilesOfCells

    def board(self, setting: Setting) -> _Board | None:
        """A board under a condition; None for a profile, and without cells."""
        design, cells = self.opened.design, self._cells(setting)
        if setting.description is None or not cells:
            return None
        job = ProfileJob.of(setting, design, self.opened.file)
        profile = known_profile(job, self.directory, self.results)
        estimates = ReplayEstimates(design, setting, profile, self.directory, self.files)
        return _Board(setting, setting.description, cells, job, profile, estimates)

    def controls(self, boards: Sequence[_Board]) -> Mapping[str, _Left]:
        """Control replays that are left, under the condition of the cell that takes longest.

        Args:
            boards: A board under each of its conditions.

        Returns:
            At most one entry, by the name of the setting.
        """
        repetitions, seed = self.opened.design.repetitions, self.opened.file.seed
        cells = [cell for board in boards for cell in board.cells if self._may_run(cell)]
        if not cells:
            return {}
        control = control_of(cells, repetitions, seed, self.files)
        finished = len(names_of_replays(repetitions, control=True) & self._names(control))
        if finished == repetitions:
            return {}
        is_drawn = finished or all(is_solved(self._names(cell)) for cell in cells)
        candidates = {cell.hash for cell in ([control] if is_drawn else cells)}
        found = [
            (board.setting.name, board.estimates.of(cell))
            for board in boards
            for cell in board.cells
            if cell.hash in candidates
        ]
        longest, _ = max(found, key=lambda named: named[1].time_s)
        dearest = ReplayEstimate.dearest([estimate for _, estimate in found])
        return {longest: _Left(repetitions - finished, dearest)}

    def of(self, setting: Setting, board: _Board | None, controls: _Left | None) -> BoardPreview:
        """Preview of a setting, which is a ``board`` with these ``controls``, or a profile."""
        design, cells = self.opened.design, self._cells(setting)
        unsolved = [cell for cell in cells if not is_solved(self._names(cell))]
        nothing = BoardPreview(
            setting=setting.name,
            cells=len(cells),
            unsolved=len(unsolved),
            search_s=sum(design.method_by_name[cell.method].time_limit_s for cell in unsolved),
            profile_s=None,
            profile_j=None,
            profile_written_bytes=None,
            replays=0,
            controls=0,
            replay_s=None,
            energy_j=None,
            energy_source=None if setting.profile is None else setting.profile.energy_source,
            most_written_bytes=None,
            basis=None,
            reason=None,
            wear=None,
            most_wear=None,
        )
        return nothing if board is None else self._with_board(nothing, board, controls)

    def _with_board(
        self, nothing: BoardPreview, board: _Board, controls: _Left | None
    ) -> BoardPreview:
        description, profile = board.description, board.profile
        estimate = estimate_profile(board.job) if profile is None else None
        schedules = list(self._schedules(board))
        left = schedules if controls is None else [*schedules, controls]
        energy_j = _energy_j(left)
        unknown_bytes = max((each.replay.unknown_step_bytes for each in schedules), default=0)
        source: EnergySource = "estimated" if description.emulator is None else "emulated"
        return replace(
            nothing,
            profile_s=None if estimate is None else estimate.time_s,
            profile_j=None if estimate is None else nominal_energy_j(description, estimate.time_s),
            profile_written_bytes=None if estimate is None else estimate.written_bytes,
            replays=sum(each.count for each in left),
            controls=0 if controls is None else controls.count,
            replay_s=math.fsum(each.count * each.replay.time_s for each in left),
            energy_j=energy_j,
            energy_source=source if profile is None else profile.energy_source,
            most_written_bytes=sum(each.count * each.replay.written_bytes for each in left),
            basis=basis_of(description, profile),
            reason=None
            if energy_j is not None
            else "its description states no nominal_power_w, and no profile has measured its power"
            " yet",
            wear=_wear(description, board.cells, self.directory),
            most_wear=None
            if description.storage is None or not unknown_bytes
            else wear_at_most(description.storage, unknown_bytes, STEPS_PER_DAY),
        )

    def _schedules(self, board: _Board) -> Iterator[_Left]:
        """Replays of each schedule that are left, without controls."""
        names = names_of_replays(self.opened.design.repetitions, control=False)
        for cell in board.cells:
            missing = len(names - self._names(cell))
            if missing and self._may_run(cell):
                yield _Left(missing, board.estimates.of(cell))

    def _may_run(self, cell: Cell) -> bool:
        """Whether a cell has a schedule, or may get one."""
        names = self._names(cell)
        return not is_solved(names) or self.directory.has_schedule(cell, names)

    def _cells(self, setting: Setting) -> tuple[Cell, ...]:
        design = self.opened.design
        return tuple(cell for cell in design.cells if design.setting_of(cell) is setting)

    def _names(self, cell: Cell) -> frozenset[str]:
        return self.files.get(cell.hash, frozenset())


def _energy_j(left: Iterable[_Left]) -> float | None:
    """Joules of all replays together; None if those of some are unknown."""
    energies_j = [
        None if each.replay.energy_j is None else each.count * each.replay.energy_j for each in left
    ]
    known_j = [energy_j for energy_j in energies_j if energy_j is not None]
    return math.fsum(known_j) if len(known_j) == len(energies_j) else None


def _wear(
    description: DeviceDescription, cells: Iterable[Cell], directory: CampaignDirectory
) -> Wear | None:
    """Wear of the storage by the schedule that writes the most in a step, if it can be run."""
    solved = (each for cell in cells if (each := directory.solved(cell)) is not None)
    worst = max(solved, key=lambda each: each.bytes_written_to_storage or 0, default=None)
    if worst is None or not worst.bytes_written_to_storage:
        return None
    graph, schedule = directory.schedule(worst.cell)
    try:
        subject = Subject(description, training_step_of(graph), graph, schedule)
        plan = planned_execution(subject)
        storage = description.storage
        return None if storage is None else expected_wear(plan, storage, STEPS_PER_DAY)
    except JoulewrightError:  # such as a plan that does not fit, which the run will report
        return None

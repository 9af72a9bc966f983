"""What is left of a campaign, and what that takes, without touching a board."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile
from statistics import fmean

from campaigns.design.cells import Cell
from campaigns.design.opening import OpenedCampaign
from campaigns.design.settings import Setting
from campaigns.keeping.directory import (
    CampaignDirectory,
    FilesOfCells,
    has_replay,
    is_solved,
)
from campaigns.keeping.records import ReplayPlace
from campaigns.running.profiling import ProfileJob, known_profile, preview
from campaigns.running.solving import costed_network
from devices.description import DeviceDescription
from devices.errors import JoulewrightError
from devices.profile import DeviceProfile, EnergySource
from devices.results import Results
from devices.wear import Wear
from replay.run_report import STEPS_PER_DAY
from replay.runs import Subject, expected_wear, planned_execution, training_step_of

_OVERHEAD_S = 10.0  # of a replay: compiling, connecting, copying
_GUARDED_STEPS = 2


@dataclass(frozen=True)
class BoardPreview:
    """What is left for a board under a condition, or for a profile.

    ``search_s`` is the most that the searches may take, one after the other. ``profile_s`` is None
    if a profile is known, or is what the board is. ``replays`` are those of cells that have or may
    get a schedule, without controls. ``replay_s``, ``energy_j`` and
    ``written_bytes`` are of all replays together, None if no profile and no replay tells them.
    ``profile_written_bytes`` are those of measuring the storage. ``wear`` is that of the schedule
    that writes the most in a step, among those that are known; None if none of them pages.
    """

    setting: str
    cells: int
    unsolved: int
    search_s: float
    profile_s: float | None
    profile_written_bytes: int | None
    replays: int
    replay_s: float | None
    energy_j: float | None
    energy_source: EnergySource | None
    written_bytes: int | None
    wear: Wear | None


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
    files = directory.files()
    return tuple(
        _preview(opened, setting, directory, files, results) for setting in opened.design.settings
    )


def _preview(
    opened: OpenedCampaign,
    setting: Setting,
    directory: CampaignDirectory,
    files: FilesOfCells,
    results: Results,
) -> BoardPreview:
    design = opened.design
    cells = [cell for cell in design.cells if design.setting_of(cell) is setting]
    unsolved = [cell for cell in cells if not is_solved(files.get(cell.hash, frozenset()))]
    search_s = sum(design.method_by_name[cell.method].time_limit_s for cell in unsolved)
    profile, profile_s, written = setting.profile, None, None
    if setting.is_run and cells:
        job = ProfileJob.of(setting, design, opened.file)
        profile = known_profile(job, directory, results)
        if profile is None:
            plan = preview(job)
            profile_s = plan.estimated_s
            written = None if plan.storage is None else plan.storage.written_bytes
    left = {cell: _missing_replays(opened, cell, directory, files) for cell in cells}
    replay_s, energy_j, written_bytes = None, None, None
    if setting.is_run and profile is not None:
        replay_s, energy_j, written_bytes = _replays(opened, left, profile, directory, files)
    return BoardPreview(
        setting=setting.name,
        cells=len(cells),
        unsolved=len(unsolved),
        search_s=search_s,
        profile_s=profile_s,
        profile_written_bytes=written,
        replays=sum(left.values()),
        replay_s=replay_s,
        energy_j=energy_j,
        energy_source=None if profile is None else profile.energy_source,
        written_bytes=written_bytes,
        wear=None if setting.description is None else _wear(setting.description, cells, directory),
    )


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


def _missing_replays(
    opened: OpenedCampaign,
    cell: Cell,
    directory: CampaignDirectory,
    files: FilesOfCells,
) -> int:
    """Replays of a cell that are left, controls excepted; all if it may have a schedule."""
    names = files.get(cell.hash, frozenset())
    places = map(_place, range(opened.design.repetitions_of(cell)))
    missing = sum(not has_replay(names, place) for place in places)
    solved = directory.solved(cell) if missing and is_solved(names) else None
    return 0 if solved is not None and not solved.has_schedule else missing


def _place(repetition: int) -> ReplayPlace:
    return ReplayPlace(repetition=repetition)


def _replays(
    opened: OpenedCampaign,
    missing: Mapping[Cell, int],
    profile: DeviceProfile,
    directory: CampaignDirectory,
    files: FilesOfCells,
) -> tuple[float, float, int]:
    """Seconds, joules and written bytes of the replays that are left.

    A schedule that is not known yet counts as the step with nothing recomputed or paged.
    """
    design = opened.design
    steps = 4 * design.steps + _GUARDED_STEPS
    kept: dict[Hashable, tuple[float, float]] = {}
    total_s, total_j, total_bytes = 0.0, 0.0, 0
    for cell, left in missing.items():
        if left == 0:
            continue
        names = files.get(cell.hash, frozenset())
        solved = directory.solved(cell) if is_solved(names) else None
        method = design.method_by_name[cell.method]
        key = cell.network, cell.batch, method.slices, method.codecs == "all"
        if key not in kept:
            level, covers = design.network_by_name[cell.network], design.budget_covers
            costed = costed_network(level, cell.batch, profile, None, covers, method)
            kept[key] = costed.kept.time_s, costed.kept.energy_j
        time_s, energy_j = kept[key]
        if solved is not None and solved.time_s is not None and solved.energy_j is not None:
            time_s, energy_j = solved.time_s, solved.energy_j
            total_bytes += left * steps * (solved.bytes_written_to_storage or 0)
        total_j += left * steps * energy_j
        total_s += left * (_measured_s(directory, cell, names) or _OVERHEAD_S + steps * time_s)
    return total_s, total_j, total_bytes


def _measured_s(directory: CampaignDirectory, cell: Cell, names: frozenset[str]) -> float | None:
    """Mean time of the cell's finished replays; None if there is none."""
    found = []
    for place in takewhile(partial(has_replay, names), map(_place, count())):
        repetition = directory.repetition(cell, place)
        if repetition is not None:
            found.append(repetition.circumstances.seconds)
    return fmean(found) if found else None

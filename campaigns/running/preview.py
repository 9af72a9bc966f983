"""What is left of a campaign, and what that takes, without touching a board."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
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
from campaigns.running.estimates import (
    StepEstimate,
    basis_of,
    estimate_step,
    may_page,
    nominal_energy_j,
    wear_at_most,
)
from campaigns.running.profiling import ProfileJob, estimate_profile, known_profile
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
    if a profile is known, or is what the board is; ``profile_j`` are the joules of measuring it.
    ``replays`` are those of cells that have or may get a schedule, without controls. ``replay_s``,
    ``energy_j`` and ``most_written_bytes`` are of all replays together, None for a profile. They
    are estimates: ``basis`` says what from, and ``reason`` why ``energy_j`` of a board is None.
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
    replay_s: float | None
    energy_j: float | None
    energy_source: EnergySource | None
    most_written_bytes: int | None
    basis: str | None
    reason: str | None
    wear: Wear | None
    most_wear: Wear | None


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
    design, description = opened.design, setting.description
    cells = [cell for cell in design.cells if design.setting_of(cell) is setting]
    unsolved = [cell for cell in cells if not is_solved(files.get(cell.hash, frozenset()))]
    nothing = BoardPreview(
        setting=setting.name,
        cells=len(cells),
        unsolved=len(unsolved),
        search_s=sum(design.method_by_name[cell.method].time_limit_s for cell in unsolved),
        profile_s=None,
        profile_j=None,
        profile_written_bytes=None,
        replays=0,
        replay_s=None,
        energy_j=None,
        energy_source=None if setting.profile is None else setting.profile.energy_source,
        most_written_bytes=None,
        basis=None,
        reason=None,
        wear=None,
        most_wear=None,
    )
    if description is None or not cells:
        return nothing
    job = ProfileJob.of(setting, design, opened.file)
    profile = known_profile(job, directory, results)
    estimate = estimate_profile(job) if profile is None else None
    left = {cell: _missing_replays(opened, cell, directory, files) for cell in cells}
    replays = _replays(opened, setting, left, profile, directory, files)
    source: EnergySource = "estimated" if description.emulator is None else "emulated"
    return replace(
        nothing,
        profile_s=None if estimate is None else estimate.time_s,
        profile_j=None if estimate is None else nominal_energy_j(description, estimate.time_s),
        profile_written_bytes=None if estimate is None else estimate.written_bytes,
        replays=sum(left.values()),
        replay_s=replays.time_s,
        energy_j=replays.energy_j,
        energy_source=source if profile is None else profile.energy_source,
        most_written_bytes=replays.written_bytes,
        basis=basis_of(description, profile),
        reason=None
        if replays.energy_j is not None
        else "its description states no nominal_power_w, and no profile has measured its power yet",
        wear=_wear(description, cells, directory),
        most_wear=None
        if description.storage is None or not replays.written_a_step
        else wear_at_most(description.storage, replays.written_a_step, STEPS_PER_DAY),
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


@dataclass(frozen=True)
class _Replays:
    """Replays that are left, together; ``written_a_step``: the most by a schedule to be found."""

    time_s: float
    energy_j: float | None
    written_bytes: int
    written_a_step: int


def _replays(
    opened: OpenedCampaign,
    setting: Setting,
    missing: Mapping[Cell, int],
    profile: DeviceProfile | None,
    directory: CampaignDirectory,
    files: FilesOfCells,
) -> _Replays:
    """Time, energy and writes of the remaining replays.

    A schedule that is not known yet counts as the step with nothing recomputed or paged, and as one
    that pages every tensor out once.
    """
    design = opened.design
    steps = 4 * design.steps + _GUARDED_STEPS
    steps_of: dict[Hashable, StepEstimate] = {}
    times_s, energies_j, total_bytes, most_bytes = [], [], 0, 0
    for cell, left in missing.items():
        if left == 0:
            continue
        names = files.get(cell.hash, frozenset())
        solved = directory.solved(cell) if is_solved(names) else None
        method = design.method_by_name[cell.method]
        key = cell.network, cell.batch, method.slices, method.codecs == "all"
        if key not in steps_of:
            steps_of[key] = estimate_step(design, cell, setting, profile)
        step = steps_of[key]
        time_s, energy_j, written = step.time_s, step.energy_j, 0
        if solved is not None and solved.time_s is not None and solved.energy_j is not None:
            time_s, energy_j = solved.time_s, solved.energy_j
            written = solved.bytes_written_to_storage or 0
        elif may_page(method):
            written = step.most_written_bytes
            most_bytes = max(most_bytes, written)
        total_bytes += left * steps * written
        energies_j.append(None if energy_j is None else left * steps * energy_j)
        times_s.append(left * (_measured_s(directory, cell, names) or _OVERHEAD_S + steps * time_s))
    known_j = [energy_j for energy_j in energies_j if energy_j is not None]
    return _Replays(
        time_s=math.fsum(times_s),
        energy_j=math.fsum(known_j) if len(known_j) == len(energies_j) else None,
        written_bytes=total_bytes,
        written_a_step=most_bytes,
    )


def _measured_s(directory: CampaignDirectory, cell: Cell, names: frozenset[str]) -> float | None:
    """Mean time of the cell's finished replays; None if there is none."""
    found = []
    for place in takewhile(partial(has_replay, names), map(_place, count())):
        repetition = directory.repetition(cell, place)
        if repetition is not None:
            found.append(repetition.circumstances.seconds)
    return fmean(found) if found else None

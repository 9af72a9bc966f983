"""What a disturbed campaign must have in common with an undisturbed one, and must not leave."""

from __future__ import annotations

import fcntl
import math
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.setup import COST_FREE, LINUX, MICRO, Place
from campaigns.keeping.results import CampaignResults, CellResult, read_campaign
from devices.documents.document import read_yaml
from devices.profile import DeviceProfile
from profiler.lab.image import build_image
from profiler.run.trials import RunDirectory

SAME_TIME = {MICRO: 1e-6, LINUX: 1e-2}
"""Relative difference within which times of a board are equal; Linux has programs of its own."""

_SAME_COSTS = 1e-3

_SSH_S = 60.0
_ON_BOARD = (
    "ls -d ~/.cache/joulewright/session.* ~/.cache/joulewright/closing.* /tmp/joulewright-boards/*"
    " 2>/dev/null; ps | grep '[j]oulewright-harness'"
)


@dataclass(frozen=True)
class BoardAgreement:
    """How a board's cells agree in the two campaigns.

    ``same_schedules`` of ``with_schedule`` cells have the same actions; ``time_off`` is the largest
    relative difference of a replay's time, ``control_off`` that between a replay and its control in
    the undisturbed campaign, ``profile_off`` that of an operation's time. ``values``
    replays of ``replays`` were compared with unscheduled steps and had all their values.
    """

    board: str
    cells: int
    with_schedule: int
    same_schedules: int
    must_be_same: int
    replays: int
    values: int
    time_off: float
    control_off: float
    profile_off: float


@dataclass(frozen=True)
class Agreement:
    """The boards, and sentences about what is wrong."""

    boards: tuple[BoardAgreement, ...]
    wrong: tuple[str, ...]


def compare(undisturbed: Path, disturbed: Path) -> Agreement:
    """Compare two campaigns cell by cell. Reading them checks every file."""
    first, second = read_campaign(undisturbed), read_campaign(disturbed)
    wrong: list[str] = []
    if [each.cell for each in first.cells] != [each.cell for each in second.cells]:
        wrong.append("the campaigns have other cells")
    pairs = list(zip(first.cells, second.cells, strict=True))
    boards = []
    for board in dict.fromkeys(one.cell.board for one, _ in pairs):
        of_board = [pair for pair in pairs if pair[0].cell.board == board]
        boards.append(_compare_board(board, of_board, wrong))
    wrong += _unreadable(second)
    return Agreement(tuple(boards), tuple(wrong))


def _compare_board(
    board: str, pairs: list[tuple[CellResult, CellResult]], wrong: list[str]
) -> BoardAgreement:
    same = with_schedule = must = replays = values = 0
    time_off = 0.0
    for one, other in pairs:
        cell = other.cell
        if one.state != other.state:
            wrong.append(f"{cell}: {other.state}, undisturbed {one.state}")
            continue
        is_same = one.schedule()[1].actions == other.schedule()[1].actions
        if one.state == "done":
            with_schedule += 1
            same += is_same
            if cell.method in COST_FREE:
                must += 1
                if not is_same:
                    wrong.append(f"{cell}: another schedule than undisturbed")
            elif board in SAME_TIME and not (_keeps_to(one, other) and _keeps_to(other, one)):
                wrong.append(f"{cell}: its schedule needs less energy than was proven necessary")
        for runs, others in (
            (one.repetitions, other.repetitions),
            (one.controls, other.controls),
        ):
            if [each.number for each in runs] != [each.number for each in others]:
                wrong.append(f"{cell}: {len(others)} replays, undisturbed {len(runs)}")
            for run, again in zip(runs, others, strict=False):
                replays += 1
                off = abs(again.time_s.measured.median / run.time_s.measured.median - 1)
                time_off = max(time_off, off) if is_same else time_off
                if is_same and off > SAME_TIME.get(board, math.inf):
                    wrong.append(f"{cell}: its step takes {off:.2%} more or less than undisturbed")
                values += again.values_identical and again.values_compared
                if not again.values_compared:
                    wrong.append(f"{cell}: values were not compared with the unscheduled step")
                elif not again.values_identical:
                    wrong.append(f"{cell}: values differ from the unscheduled step")
    return BoardAgreement(
        board=board,
        cells=len(pairs),
        with_schedule=with_schedule,
        same_schedules=same,
        must_be_same=must,
        replays=replays,
        values=values,
        time_off=time_off,
        control_off=max(_control_off(one) for one, _ in pairs),
        profile_off=_profile_off(*pairs[0]),
    )


def _control_off(result: CellResult) -> float:
    """Largest relative difference between a replay and its control, of the same schedule."""
    times = {each.number: each.time_s.measured.median for each in result.repetitions}
    offs = [each.time_s.measured.median / times[each.number] - 1 for each in result.controls]
    return max(map(abs, offs), default=0.0)


def _keeps_to(bounded: CellResult, found: CellResult) -> bool:
    """Whether a schedule needs no less energy than the other campaign's proof for any order."""
    bound, energy = bounded.solved, found.solved
    assert bound is not None, "both are solved"
    assert energy is not None, "both are solved"
    least_j = bound.any_order_bound_j or 0.0
    return energy.energy_j is None or energy.energy_j >= least_j * (1 - _SAME_COSTS)


def _profile_off(one: CellResult, other: CellResult) -> float:
    first, second = one.profile(), other.profile()
    assert first is not None, "the board is measured"
    assert second is not None, "the board is measured"
    return max(
        abs(second.by_spec[spec].warm.time_s.median / operation.warm.time_s.median - 1)
        for spec, operation in first.by_spec.items()
    )


def _unreadable(results: CampaignResults) -> Iterator[str]:
    """Files of a campaign and of the runs of its profiles that are damaged or not finished."""
    for result in results.cells:
        for repetition in (*result.repetitions, *result.controls):
            report = result.report(repetition)
            if report.time_s != repetition.time_s:
                yield f"{result.cell}: the report of a replay has other figures than its record"
    for path in results.directory.profiles.glob("*.yaml"):
        read_yaml(path, DeviceProfile)
    for run in (results.directory.path.parents[1] / "runs").iterdir():
        RunDirectory(run).profile()
    for path in results.directory.path.parents[1].rglob(".*"):
        if path.is_file():
            yield f"{path.name}: a file that was not finished is left"


def left_behind(place: Place) -> list[str]:
    """What a campaign left: sessions, held locks, boards and scratch files, on all boards."""
    found = [f"session on this computer: {path.name}" for path in place.cache.glob("session.*")]
    found += [f"claim on this computer: {path.name}" for path in _claims(place)]
    found += [f"held lock: {path.name}" for path in place.runtime.rglob("*") if _is_held(path)]
    boards = place.started_boards
    found += [f"emulated board: {path.name}" for path in boards.glob("*") if path.is_dir()]
    found += [f"in the firmware cache: {path.name}" for path in place.cache.glob("firmware/.*")]
    found += [f"scratch file: {path.name}" for path in place.scratch.glob("*") if path.is_file()]
    found += [f"in the storage: {path.name}" for path in place.storage.iterdir()]
    if place.has_kept_board:
        found += [f"on {LINUX}: {line}" for line in _on_linux(place)]
    return found


def _claims(place: Place) -> list[Path]:
    return list((place.scratch / "joulewright-boards").glob("*"))


def _is_held(path: Path) -> bool:
    if not path.is_file():
        return False
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _on_linux(place: Place) -> list[str]:
    """Sessions, claims and programs on the emulated Linux board."""
    image = build_image(lambda _step: None)
    done = subprocess.run(
        [
            *("ssh", "-F", "none", "-i", str(image.private_key), "-p", str(place.board_port)),
            *("-o", f"UserKnownHostsFile={place.kept_board}/known_hosts", "-o", "BatchMode=yes"),
            *("root@127.0.0.1", _ON_BOARD),
        ],
        capture_output=True,
        text=True,
        timeout=_SSH_S,
        check=False,
    )
    if done.returncode == 255:
        return [f"ssh fails: {done.stderr.strip()}"]
    return done.stdout.splitlines()

"""A campaign on three boards under random faults, compared with an undisturbed one.

Processes are killed, links dropped, boards rebooted, and files limited to a few bytes. The campaign
is started again whenever it has ended before it is done.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import textwrap
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.chaos.check import SAME_TIME, Agreement, compare, left_behind
from benchmarks.chaos.disturbed import Course, count_all_replays, disturb
from benchmarks.chaos.faults import WEIGHTS, Injector
from benchmarks.chaos.setup import COST_FREE, LINUX, CampaignProcess, Place, Size
from benchmarks.machine import program_version, release
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from campaigns.keeping.results import read_campaign
from devices.user_cache import user_cache
from tests.support.boards.processes import eventually, marked

_UNDISTURBED, _DISTURBED = "undisturbed", "disturbed"
_LIMIT_S = 3 * 3600.0
_LONGEST_REASON = 120


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--faults", type=int, default=100, help="faults to inject (100)")
    parser.add_argument("--seed", type=int, default=2, help="seed of campaign and faults (2)")
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="time after which no fault is injected (60)"
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FOLDER",
        help="where everything is kept, and compared again if it is there (a temporary folder)",
    )
    publish("benchmarks.chaos", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    if arguments.record is not None:
        return _measure_in(Place(arguments.record), arguments)
    user_cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="chaos.", dir=user_cache()) as folder:
        return _measure_in(Place(Path(folder)), arguments)


def _measure_in(place: Place, arguments: argparse.Namespace) -> Page:
    kept = place.root / "course.json"
    if not kept.is_file():
        if any((place.root / results).exists() for results in (_UNDISTURBED, _DISTURBED)):
            raise SystemExit(
                f"{place.root}: an earlier call did not get to its end, so that its faults are not"
                " known; begin a new folder"
            )
        _run(place, arguments).write(kept)
    course = Course.read(kept)
    first, second = place.campaign(_UNDISTURBED), place.campaign(_DISTURBED)
    agreement = compare(first, second)
    return Page(
        title="Campaigns under faults",
        text=_text(course, agreement, count_all_replays(first)),
        tables=[
            _faults(course),
            _agreement(agreement),
            _ends(course),
            _failed_attempts(place, second),
        ],
        versions=[program_version("qemu-system-arm"), program_version("cc")],
    )


def _run(place: Place, arguments: argparse.Namespace) -> Course:
    """Run both campaigns."""
    made = f"{release()}, {datetime.now(UTC):%Y-%m-%d}"
    place.write(Size(), arguments.seed)
    report_progress("starting the emulated Linux board")
    place.lab("up")
    try:
        report_progress("the undisturbed campaign")
        undisturbed = CampaignProcess(place, _UNDISTURBED)
        if undisturbed.wait(_LIMIT_S) != 0:
            raise SystemExit(f"the undisturbed campaign failed: {undisturbed.last_words()}")
        report_progress("the disturbed campaign")
        course = disturb(
            place,
            _DISTURBED,
            Injector(place, arguments.seed),
            faults=arguments.faults,
            replays=count_all_replays(place.campaign(_UNDISTURBED)),
            longest_pause_s=10.0,
            limit_s=60 * arguments.minutes,
            tell=report_progress,
        )
        course.left, course.made = _left(place, course), made
        return course
    finally:
        with suppress(OSError):
            place.lab("down")


def _left(place: Place, course: Course) -> list[str]:
    eventually(lambda: not any(marked(mark) for mark in course.marks))
    processes = [f"process {pid}" for mark in course.marks for pid in marked(mark)]
    return processes + left_behind(place)


def _text(course: Course, agreement: Agreement, replays: int) -> str:
    cells = sum(board.cells for board in agreement.boards)
    wrong = [
        *agreement.wrong,
        *(f"done twice: {each}" for each in sorted(course.redone)),
        *(f"left behind: {each}" for each in course.left),
    ]
    verdict = "Nothing was wrong." if not wrong else "Wrong: " + "; ".join(wrong) + "."
    return f"""\
A campaign of {cells} cells and {replays} replays runs on three boards: this computer, an emulated
Linux board that is reached by SSH and stays up, and an emulated microcontroller that each replay
starts. While it runs, {len(course.faults)} faults are injected: `kill -9` of one of its processes
(the campaign itself, those of its boards and searches, compilers, shells, the harness, emulators),
a network link that is down for 2 to 15 s, resets and power cuts of boards, boards that stand still
for 2 to 10 s, and a limit of 100 bytes on files for up to 3 s (`RLIMIT_FSIZE`, in place of a full
disk, which an ordinary user cannot make). A fault is due whenever its share of the replays is
finished. Whenever `campaign run` ends, the same command is run again, until everything is done.

Then everything is compared with the same campaign undisturbed, which measured profiles of its own.
Every cell must have the same outcome, and the values of the unscheduled step. Methods that use no
measured costs ({", ".join(COST_FREE)}) must find the same schedules. The solver's searches
follow measured costs and the clock; on emulated boards, no schedule may need less energy than the
other campaign has proven necessary in any order. The same schedule must take the same time: within
a millionth on the microcontroller, within {SAME_TIME[LINUX]:.0%} on the emulated Linux board, whose
own programs interrupt steps of a millisecond. These rules were fixed before this run, after runs
with another seed. No finished schedule or replay may be written again. All files must be readable,
and none unfinished. No process, lock, session or claim may be left, here or on the Linux board.

**{verdict}** The disturbed campaign took {course.seconds / 60:.1f} min ({course.made})."""


def _faults(course: Course) -> Table:
    counts = Counter(fault.kind for fault in course.faults)
    hits = {
        kind: Counter(fault.hit for fault in course.faults if fault.kind == kind)
        for kind in WEIGHTS
    }
    return Table(
        head=("fault", "injected", "hit"),
        rows=[
            (
                kind,
                str(counts[kind]),
                "several processes"
                if kind == "fill the disk"
                else ", ".join(f"{hit} {count}" for hit, count in hits[kind].most_common()),
            )
            for kind in WEIGHTS
        ],
        title="Faults",
    )


def _agreement(agreement: Agreement) -> Table:
    return Table(
        head=(
            *("board", "cells", "with schedule", "same schedule", "must be the same"),
            *("replays", "with all values", "time differs by", "undisturbed, from control"),
            "profile differs by",
        ),
        rows=[
            (
                *(each.board, str(each.cells), str(each.with_schedule)),
                *(str(each.same_schedules), str(each.must_be_same), str(each.replays)),
                *(str(each.values), f"{each.time_off:.4%}", f"{each.control_off:.4%}"),
                f"{each.profile_off:.4%}",
            )
            for each in agreement.boards
        ],
        title="Disturbed against undisturbed",
        note="Differences are the largest of any replay with the same schedule, and of any op. The"
        " one from the control is between two runs of a schedule in the undisturbed campaign.",
    )


def _ends(course: Course) -> Table:
    return Table(
        head=("`campaign run` ended", "times"),
        rows=[(why, str(count)) for why, count in course.ended.most_common()],
        title="Calls",
    )


def _failed_attempts(place: Place, directory: Path) -> Table:
    results = read_campaign(directory)
    found = [failure for result in results.cells for failure in result.failures]
    for setting in results.design.settings:
        found += results.directory.failures(setting.name)
    counts = Counter((failure.phase, _shown(failure.reason, place)) for failure in found)
    return Table(
        head=("phase", "attempts", "reason"),
        rows=[(phase, str(count), reason) for (phase, reason), count in counts.most_common()],
        title="Failed attempts that the campaign recorded",
        note="Long reasons are cut.",
    )


def _shown(reason: str, place: Place) -> str:
    """A reason without paths, ports and names of sessions, cut to a line of the table."""
    plain = re.sub(r"session\.[0-9a-f]+", "SESSION", reason.replace(str(place.root), "FOLDER"))
    plain = re.sub(r"(127\.0\.0\.1:|port )\d+", r"\1PORT", plain)
    return textwrap.shorten(plain, _LONGEST_REASON, placeholder=" …")


if __name__ == "__main__":
    main()

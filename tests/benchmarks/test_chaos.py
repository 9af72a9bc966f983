"""A small campaign under the faults of the chaos benchmark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.chaos import __main__ as chaos
from benchmarks.chaos.check import compare, left_behind
from benchmarks.chaos.disturbed import Course, count_all_replays, disturb
from benchmarks.chaos.faults import Fault, Injector
from benchmarks.chaos.setup import MICRO, CampaignProcess, Place, Size
from tests.support.boards.processes import eventually, marked
from tests.support.progress import ignore

SMALL = Size(
    boards=(MICRO,),
    networks=("digits",),
    budgets=("100%",),
    methods=("keep-everything", "chen-sqrt-n"),
    micro_methods=("keep-everything", "chen-sqrt-n"),
)


def test_the_record_of_a_course_is_read_as_it_was_written(tmp_path: Path) -> None:
    course = Course(
        faults=[Fault("reboot a board", "linux")],
        ended=Counter({"killed": 2, "exit code 0: done": 1}),
        redone={"cells/a/cell.json"},
        left=["process 1"],
        marks=["mark"],
        seconds=1.5,
        made="a release",
    )
    course.write(tmp_path / "course.json")
    assert Course.read(tmp_path / "course.json") == course


def test_a_course_that_was_broken_off_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replays that are finished already would take no fault."""
    (tmp_path / "undisturbed").mkdir()
    monkeypatch.setattr("sys.argv", ["chaos", "--record", str(tmp_path)])
    with pytest.raises(SystemExit, match="begin a new folder"):
        chaos.main()


@pytest.mark.emulated
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_disturbed_campaign_has_the_results_of_an_undisturbed_one(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(SMALL, seed=3)
    assert CampaignProcess(place, "undisturbed").wait(900) == 0
    replays = count_all_replays(place.campaign("undisturbed"))
    course = disturb(
        place,
        "disturbed",
        Injector(place, seed=3),
        faults=8,
        replays=replays,
        longest_pause_s=1.0,
        limit_s=600,
        tell=ignore,
    )
    assert len(course.faults) > 4
    assert course.redone == set()
    agreement = compare(place.campaign("undisturbed"), place.campaign("disturbed"))
    assert agreement.wrong == ()
    assert eventually(lambda: not any(marked(mark) for mark in course.marks))
    assert left_behind(place) == []

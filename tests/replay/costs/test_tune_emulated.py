"""Costs that hold, from profile to tuned schedule, on an emulated Cortex-M3.

An instruction takes a fixed time there, whatever this computer does, so that nothing but the data
differs from one run to the next.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cli
from benchmarks.replay.costs import costs_page
from devices.documents.document import dump_yaml, read_json, read_yaml
from devices.profile import DeviceProfile
from devices.replay import ReplayReport
from replay.costs.check import CheckReport
from replay.costs.watch import SITTINGS

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.slow,
    pytest.mark.usefixtures("own_boards", "short_searches"),
]

DEVICE = ("--device", "emulated-m3-sd")

Say = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def profiled(
    tmp_path_factory: pytest.TempPathFactory, own_boards: None, short_searches: None
) -> Path:
    """Results with a profile of digits; what its storage costs is not needed."""
    results = tmp_path_factory.mktemp("results")
    model = ("--model", "digits", "--batch", "1", "--no-storage", "--blocks", "2")
    assert cli.main(["profile", *DEVICE, *model, "--results", str(results)]) == 0
    return results


def test_a_step_that_is_larger_than_the_board_is_watched_while_it_pages(tmp_path: Path) -> None:
    """The plan of such a step ends with copies of the trained values to storage.

    The step is watched in whole layers and in the slices that are offered for this board.
    """
    words = ("--model", "digits", "--batch", "8", "--blocks", "1", "--storage-budget-mib", "64")
    assert cli.main(["profile", *DEVICE, *words, "--results", str(tmp_path)]) == 0
    profile = read_yaml(tmp_path / "profiles" / "emulated-m3-sd.yaml", DeviceProfile)
    whole, sliced = profile.step_costs
    assert (whole.network.slices is None, sliced.network.slices is None) == (True, False)
    for watched in (whole, sliced):
        assert all("of RAM" in sitting.schedule for sitting in watched.sittings)
        assert all(place.time_s.median > 0 for place in watched.places)
    assert any(sitting.page_in and sitting.page_out for sitting in whole.sittings)


@pytest.fixture
def say(profiled: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command on the profiled board and return its document."""

    def run(*words: str, code: int = 0, attempts: int = 1) -> dict[str, Any]:
        for _ in range(attempts):
            capsys.readouterr()
            found = cli.main([*words, "--results", str(profiled), "--json"])
            if found == code:
                break
        assert found == code
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return run


def profile_in(results: Path) -> DeviceProfile:
    return read_yaml(results / "profiles" / "emulated-m3-sd.yaml", DeviceProfile)


def test_a_profile_has_the_cost_of_every_op_in_its_place(profiled: Path) -> None:
    (costs,) = profile_in(profiled).step_costs
    assert costs.network.model == "digits"
    assert len(costs.sittings) >= SITTINGS
    schedules = {sitting.schedule for sitting in costs.sittings}
    assert "unscheduled" in schedules
    assert len(schedules) == 2  # without storage, 40 % of the RAM is too little
    by_key = {operation.op: operation.warm for operation in profile_in(profiled).operations}
    ratios = [place.time_s.median / by_key[place.key].time_s.median for place in costs.places]
    assert min(ratios) < 0.95  # zeros after a ReLU take fewer instructions


def test_a_run_lies_in_the_intervals_of_its_prediction(profiled: Path, say: Say) -> None:
    schedule = profiled / "schedule.json"
    budget = ("--ram-budget", "70%", "--gap", "0.9", "--time-limit", "60")
    say("solve", "--profile", "emulated-m3-sd", *budget, "--out", str(schedule))
    report = ReplayReport.model_validate(
        say("run", *DEVICE, "--schedule", str(schedule), "--steps", "5")
    )
    assert report.time_s.is_held
    assert abs(report.time_s.difference or 0.0) < 0.01
    # Of ten runs with other schedules and data, all held 96 % of the time or more. Counted, it was
    # 82 to 92 % of the actions: those of one run err together, and short ones more than they claim.
    assert report.held_time > 0.9
    assert report.held_actions > 0.8 * len(report.actions)
    table, *_ = costs_page([profiled], versions=()).tables
    held = {row[0]: float(row[1].removesuffix(" %")) for row in table.rows}
    assert held["place"] == pytest.approx(100 * report.held_actions / len(report.actions), abs=0.1)
    assert held["by itself"] < 0.5 * held["place"]


def test_a_check_confirms_the_intervals(profiled: Path, say: Say) -> None:
    words = ("check", *DEVICE, "--blocks", "1")
    # One of forty checks finds a good profile wrong, by the interval of the share that holds. Two
    # in a row are a defect.
    report = CheckReport.model_validate(say(*words, attempts=2))
    assert report.overall.high >= 0.95
    assert report.overall.share > 0.9
    assert report.difference < 0.01
    assert report.unchecked == 0
    assert any(kind.startswith("in place: ") for kind in report.kinds)
    file = max((profiled / "checks").glob("emulated-m3-sd.*.json"), key=lambda f: f.stat().st_mtime)
    assert read_json(file, CheckReport) == report


def test_a_check_notices_intervals_that_do_not_hold(profiled: Path, say: Say) -> None:
    """A profile of a board that is twice as fast; a few operations suffice."""
    profile = profile_in(profiled)
    faster = [
        operation.model_copy(
            update={
                state: operation.isolated(state).model_copy(
                    update={"time_s": operation.isolated(state).time_s.scaled(0.5)}
                )
                for state in ("warm", "cold")
            }
        )
        for operation in profile.operations
    ]
    file = profiled / "faster.yaml"
    file.write_text(dump_yaml(profile.changed(operations=faster)))
    words = ("--profile", str(file), "--blocks", "1", "--time-limit", "1")
    report = CheckReport.model_validate(say("check", *DEVICE, *words, code=4))
    assert report.overall.share < 0.2
    assert report.difference == pytest.approx(1.0, abs=0.1)
    assert report.unchecked > 0


def test_tuning_within_a_budget_that_nothing_fits_exits_with_5(
    profiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", str(tmp_path / "tuned"), "--results", str(profiled))
    assert cli.main(["tune", *DEVICE, "--ram-budget", "1KiB", "--time-limit", "60", *out]) == 5
    assert "infeasible within" in capsys.readouterr().err


def test_rounds_of_tuning_are_kept_and_resumed(
    profiled: Path, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = ("--ram-budget", "100%", "--time-limit", "60", "--steps", "3")
    words = ("tune", *DEVICE, *budget, "--out", str(tmp_path / "tuned"))
    once = say(*words, "--rounds", "1")
    assert [each["run"] for each in once["rounds"]] == [str(tmp_path / "tuned" / "round-1")]
    before = profile_in(profiled).step_costs[0]
    after = read_yaml(Path(once["profile"]), DeviceProfile).step_costs[0]
    assert len(after.sittings) == len(before.sittings) + 1
    assert read_json(tmp_path / "tuned" / "round-1" / "replay.json", ReplayReport)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a finished round is not run again")

    monkeypatch.setattr("replay.runs.replay_schedule", refuse)
    assert say(*words, "--rounds", "1")["rounds"] == once["rounds"]
    monkeypatch.undo()
    twice = say(*words, "--rounds", "2")
    assert twice["rounds"][0] == once["rounds"][0]
    assert twice["settled"] or len(twice["rounds"]) == 2
    assert Path(twice["schedule"]).exists()

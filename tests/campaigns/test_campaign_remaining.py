"""What of a campaign is left to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cli
from campaigns.design.cells import Cell, Design
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import Repetition, ReplayPlace
from campaigns.keeping.results import read_campaign
from campaigns.keeping.status import read_status
from campaigns.keeping.tables import write_tables
from campaigns.running.order import control_of, replays_in_order
from campaigns.running.remaining import is_finished, replays_of
from devices.replay import DifferingValue, ValueCheck
from devices.results import Results
from solver.baselines.names import BASELINE_NAMES
from solver.baselines.registry import BASELINES
from tests.support.campaigns import campaign_with_replays, circumstances
from tests.support.onboard.replays import report_of

SEED, REPETITIONS = 0, 2


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> CampaignDirectory:
    """A campaign with two repetitions of every schedule, without controls."""
    return campaign_with_replays(Results(tmp_path_factory.mktemp("results")))


def with_schedules(design: Design, directory: CampaignDirectory) -> list[Cell]:
    cells = []
    for cell in design.cells:
        solved = directory.solved(cell)
        if solved is not None and solved.has_schedule:
            cells.append(cell)
    return cells


def replays_with_control(cells: Sequence[Cell], seed: int) -> list[tuple[str, ReplayPlace]]:
    control = control_of(cells, REPETITIONS, seed, {})
    planned = replays_in_order(cells, control, REPETITIONS, seed)
    return [(cell.hash, place) for cell, place in planned]


def all_replays(design: Design, directory: CampaignDirectory) -> list[tuple[str, ReplayPlace]]:
    return replays_with_control(with_schedules(design, directory), SEED)


def files_with(
    design: Design, replays: list[tuple[str, ReplayPlace]]
) -> Mapping[str, frozenset[str]]:
    names = {cell.hash: {"cell.json"} for cell in design.cells}
    for of_cell, place in replays:
        names[of_cell] |= {f"{place.stem}.json", f"{place.stem}.replay.json"}
    return {of_cell: frozenset(found) for of_cell, found in names.items()}


@given(data=st.data())
def test_exactly_the_replays_without_a_file_are_left(
    campaign: CampaignDirectory, data: st.DataObject
) -> None:
    design = campaign.design()
    planned = all_replays(design, campaign)
    done = [each for each in planned if data.draw(st.booleans())]
    files = files_with(design, done)
    found = replays_of(campaign, design.cells, REPETITIONS, SEED, files)
    assert found.count == len(planned)
    assert [(cell.hash, place) for cell, place in found.missing] == [
        each for each in planned if each not in done
    ]
    assert is_finished(campaign, design, SEED, files) == (len(done) == len(planned))


def test_a_campaign_that_got_more_cells_runs_no_controls_of_another_one(
    campaign: CampaignDirectory,
) -> None:
    design = campaign.design()
    first, *added = with_schedules(design, campaign)
    for seed in range(10):
        files = files_with(design, replays_with_control([first], seed))
        missing = replays_of(campaign, design.cells, REPETITIONS, seed, files).missing
        assert not any(place.control for _, place in missing)
        assert {cell.hash for cell, _ in missing} == {cell.hash for cell in added}


def test_a_campaign_with_an_unsolved_cell_is_not_finished(campaign: CampaignDirectory) -> None:
    design = campaign.design()
    files = dict(files_with(design, all_replays(design, campaign)))
    assert is_finished(campaign, design, SEED, files)
    del files[design.cells[-1].hash]
    assert not is_finished(campaign, design, SEED, files)


@pytest.mark.parametrize("control", [False, True])
def test_a_finished_campaign_whose_schedules_change_values_does_not_end_well(
    control: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As run does; control replays count, too."""
    one_cell = {"ram_budgets": ["100%"], "methods": ["keep-everything"]}
    directory = campaign_with_replays(Results(tmp_path), **one_cell)
    (result,) = read_campaign(directory.path).cells
    graph, schedule = result.schedule()
    run = ["campaign", "run", str(tmp_path / "tried.yaml"), "--results", str(tmp_path)]

    def keep(place: ReplayPlace, *values: ValueCheck) -> None:
        report = report_of(graph, schedule, values=values)
        found = Repetition.of(result.cell, place, report, circumstances(), attempt=1)
        directory.keep_repetition(found, report)
        write_tables(read_campaign(directory.path))

    for number in range(REPETITIONS):
        keep(ReplayPlace(repetition=number, control=True, position=number))
    assert cli.main(run) == 0
    differing = (DifferingValue(tensor="loss", what="loss", steps=(1,)),)
    against = "the unscheduled step on the board"
    changed = ValueCheck(against=against, values=1, steps=1, differing=differing)
    keep(ReplayPlace(repetition=0, control=control, position=0), changed)
    assert cli.main(run) == 1
    said = capsys.readouterr().out
    assert f"values DIFFER from those of the unscheduled step: {result.cell}" in said


def test_status_counts_the_replays_that_the_campaign_asks_for_now(tmp_path: Path) -> None:
    """After its file was changed to fewer repetitions; two files of controls count once."""
    directory = campaign_with_replays(
        Results(tmp_path), ram_budgets=["100%"], methods=["keep-everything", "chen-sqrt-n"]
    )
    (kept,) = read_status(directory.path).boards
    assert (kept.finished, kept.replays) == (4, 6)
    for cell in directory.design().cells:
        first = directory.repetition_file(cell, ReplayPlace(repetition=0))
        control = directory.repetition_file(cell, ReplayPlace(repetition=0, control=True))
        shutil.copy(first, control)
    (kept,) = read_status(directory.path).boards
    assert (kept.finished, kept.replays) == (5, 6)
    fewer = directory.design().model_copy(update={"repetitions": 1})
    directory.begin((directory.path / "campaign.yaml").read_text(), fewer)
    (kept,) = read_status(directory.path).boards
    assert (kept.finished, kept.replays) == (3, 3)


def test_status_counts_no_replays_of_cells_without_a_schedule(tmp_path: Path) -> None:
    directory = campaign_with_replays(
        Results(tmp_path), ram_budgets=["100%", "1KiB"], methods=["keep-everything"]
    )
    (without,) = (
        cell
        for cell in directory.design().cells
        if (solved := directory.solved(cell)) is not None and not solved.has_schedule
    )
    (board,) = read_status(directory.path).boards
    assert board.replays == REPETITIONS * 2  # of the other cell and a control
    directory.solved_file(without).unlink()
    (board,) = read_status(directory.path).boards
    assert board.replays == REPETITIONS * 3, "it may have a schedule yet"


def test_a_campaign_that_was_ended_before_its_tables_were_written_writes_them_and_tells_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_cell = {"ram_budgets": ["100%"], "methods": ["keep-everything"]}
    directory = campaign_with_replays(Results(tmp_path), **one_cell)
    (result,) = read_campaign(directory.path).cells
    graph, schedule = result.schedule()
    run = ["campaign", "run", str(tmp_path / "tried.yaml"), "--results", str(tmp_path)]

    def keep(number: int, *values: ValueCheck) -> None:
        place = ReplayPlace(repetition=number, control=True, position=number)
        report = report_of(graph, schedule, values=values)
        found = Repetition.of(result.cell, place, report, circumstances(), attempt=1)
        directory.keep_repetition(found, report)

    keep(0)
    write_tables(read_campaign(directory.path))
    differing = (DifferingValue(tensor="loss", what="loss", steps=(1,)),)
    against = "the unscheduled step on the board"
    keep(1, ValueCheck(against=against, values=1, steps=1, differing=differing))
    for _ in range(2):
        assert cli.main(run) == 1
        assert f"values DIFFER from those of the unscheduled step: {result.cell}" in (
            capsys.readouterr().out
        )
    (directory.tables / "cells.parquet").unlink()
    assert cli.main(run) == 1
    assert (directory.tables / "cells.parquet").is_file()


def test_names_of_baselines_are_those_of_the_registry() -> None:
    assert tuple(BASELINES) == BASELINE_NAMES


@pytest.mark.slow
def test_a_finished_campaign_is_recognised_without_solver_and_profiler(tmp_path: Path) -> None:
    """10,000 cells are recognised in little more than the time that the parser takes."""
    (tmp_path / "tried.yaml").write_text(
        "{schema: campaign/1, name: tried, boards: [{profile: m4}], networks: [linear],"
        " ram_budgets: [100%], methods: [keep-everything]}"
    )
    run = [sys.executable, cli.__file__, "campaign", "run", "tried.yaml"]
    subprocess.run(run, cwd=tmp_path, check=True, timeout=300)
    imported = subprocess.run(
        [sys.executable, "-X", "importtime", *run[1:]],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "nothing is left to do" in imported.stdout
    loaded = {line.rpartition("|")[2].strip() for line in imported.stderr.splitlines()}
    assert "campaigns.design.cells" in loaded
    assert not loaded & {"solver.solving.solving", "profiler.run.run", "networks.exported", "scipy"}

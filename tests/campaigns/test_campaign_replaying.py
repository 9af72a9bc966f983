"""``run_replay``: which file of a network it reads. Replays are made up."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from campaigns.design.cells import Cell
from campaigns.design.opening import open_campaign
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import ReplayPlace
from campaigns.keeping.results import read_campaign
from campaigns.running.replaying import ReplayJob, run_replay
from devices.description import DeviceDescription
from devices.replay import ReplayReport
from devices.results import Results
from networks.training.step import TrainingStep
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule
from tests.support.campaigns import campaign_with_replays
from tests.support.networks.onnx_files import classifier_apart
from tests.support.onboard.replays import report_of
from tests.support.paths import REFERENCES

LATER = ReplayPlace(repetition=1)


@dataclass
class Bench:
    """A board that measures nothing; ``steps`` are those that it ran."""

    steps: list[TrainingStep]

    def run_schedule(
        self,
        _description: DeviceDescription,
        graph: CostedGraph,
        schedule: Schedule,
        _steps: int,
        *,
        name: str,
        step: TrainingStep,
    ) -> ReplayReport:
        self.steps.append(step)
        return report_of(graph, schedule).model_copy(update={"schedule": name})


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench([])
    monkeypatch.setattr("campaigns.running.replaying.run_schedule", made.run_schedule)
    return made


def a_campaign(root: Path, **changes: object) -> CampaignDirectory:
    words = {"ram_budgets": ["100%"], "methods": ["keep-everything"], **changes}
    return campaign_with_replays(Results(root), **words)


def job_of(root: Path, place: ReplayPlace = LATER) -> ReplayJob:
    """A replay of the only cell of the campaign whose file lies in a directory."""
    design = open_campaign(str(root / "tried.yaml"), Results(root)).design
    (cell,), (network,) = design.cells, design.networks
    description = design.setting_of(cell).description
    assert description is not None
    return ReplayJob(cell, place, description, network, design.steps)


def forget(directory: CampaignDirectory, cell: Cell, place: ReplayPlace) -> None:
    """Remove a finished replay."""
    directory.repetition_file(cell, place).unlink()
    directory.replay_file(cell, place).unlink()


# --- the network's file -------------------------------------------------------------------------


def exported_network(folder: Path) -> dict[str, object]:
    """A network in a file of PyTorch, as a campaign names it."""
    shutil.copy(REFERENCES / "exported" / "classifier.pt2", folder / "net.pt2")
    return {"model": "net.pt2"}


def onnx_network(folder: Path) -> dict[str, object]:
    """A network in an ONNX file with a weight in another file, as a campaign names it."""
    classifier_apart(folder / "net.onnx")
    return {"model": "net.onnx", "loss": "cross-entropy"}


@pytest.mark.parametrize("network_in", [exported_network, onnx_network])
def test_a_cell_is_run_after_its_campaign_has_moved(
    network_in: Callable[[Path], dict[str, object]], tmp_path: Path, bench: Bench
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    network = network_in(ours)
    a_campaign(ours, networks=[network])
    ours.rename(theirs)
    job = job_of(theirs)
    directory = CampaignDirectory(theirs / "campaigns" / "tried")
    forget(directory, job.cell, LATER)

    run_replay(job, directory, 1)

    (step,) = bench.steps
    assert step.file is not None
    assert step.file.path == theirs / str(network["model"])
    (result,) = read_campaign(directory.path).cells  # whose records are checked
    assert result.state == "done"

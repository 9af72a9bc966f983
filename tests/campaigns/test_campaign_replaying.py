"""``run_replay``: which network file it reads, and which boards it refuses. Replays are made up."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from campaigns.design.cells import Cell
from campaigns.design.opening import open_campaign
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import ReplayPlace
from campaigns.keeping.results import read_campaign
from campaigns.running.replaying import ReplayJob, run_replay
from devices.description import DeviceDescription, load_description
from devices.documents.document import dump_json, dump_yaml, write_atomically
from devices.errors import RequestRefused
from devices.library import resolve_profile
from devices.profile import BoardIdentity
from devices.replay import ReplayReport
from devices.results import Results
from networks.training.step import TrainingStep
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule
from tests.support.campaigns import campaign_with_replays
from tests.support.networks.onnx_files import classifier_apart
from tests.support.onboard.replays import report_of
from tests.support.paths import REFERENCES

BOARD = BoardIdentity(
    model="a computer under test",  # as that of made-up replays
    memory_bytes=1 << 30,
    serial="1",
    kernel="6.1",
    cpu="a processor",
    governor="performance",
    storage_card="card 1",
    cpu_frequency_hz=1e9,
)
LATER = ReplayPlace(repetition=1)


@dataclass
class Bench:
    """A board that measures nothing; ``steps`` are those that it ran."""

    board: BoardIdentity
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
        require_board: Callable[[BoardIdentity], None],
    ) -> ReplayReport:
        require_board(self.board)
        self.steps.append(step)
        return report_of(graph, schedule).model_copy(update={"board": self.board, "schedule": name})


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(BOARD, [])
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


# --- the board ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a campaign with one cell, which has a profile and one replay on ``BOARD``."""
    root = tmp_path_factory.mktemp("solved")
    directory = a_campaign(root)
    (cell,) = directory.design().cells
    forget(directory, cell, LATER)
    profile = directory.profiles / "local.yaml"
    write_atomically(profile, dump_yaml(resolve_profile("m4", root).changed(board=BOARD)))
    known = directory.solved(cell)
    assert known is not None
    known = known.model_copy(update={"profile": str(profile.relative_to(directory.path))})
    write_atomically(directory.solved_file(cell), dump_json(known))
    place = ReplayPlace(repetition=0)
    first = directory.repetition(cell, place)
    assert first is not None
    on_board = first.model_copy(update={"board": BOARD})
    write_atomically(directory.repetition_file(cell, place), dump_json(on_board))
    return root


def tried(solved: Path, tmp_path: Path) -> tuple[CampaignDirectory, ReplayJob]:
    """A copy of the campaign, and its second repetition."""
    shutil.copytree(solved, tmp_path / "tried")
    return CampaignDirectory(tmp_path / "tried" / "campaigns" / "tried"), job_of(tmp_path / "tried")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"serial": "2"},
            "local: profiles/local.yaml, the profile of the cell, is of another board: its serial"
            " was 1, and is 2 now; connect that board again",
        ),
        ({"kernel": "6.2"}, "the other repetitions of the cell .* its kernel was 6.1, and is 6.2"),
        ({"governor": "powersave"}, "its governor was performance, and is powersave now; restore"),
        ({"storage_card": "card 2"}, "its storage_card was card 1, and is card 2 now"),
    ],
)
def test_another_board_than_that_of_the_cell_is_refused(
    changes: dict[str, object], said: str, solved: Path, tmp_path: Path, bench: Bench
) -> None:
    directory, job = tried(solved, tmp_path)
    bench.board = BOARD.model_copy(update=changes)
    with pytest.raises(RequestRefused, match=said):
        run_replay(job, directory, 1)
    assert directory.repetition(job.cell, LATER) is None


@pytest.mark.parametrize("changes", [{"cpu_frequency_hz": 2e9}, {"serial": None}])
def test_a_board_is_the_same_whatever_its_frequency_and_what_it_does_not_say(
    changes: dict[str, object], solved: Path, tmp_path: Path, bench: Bench
) -> None:
    directory, job = tried(solved, tmp_path)
    bench.board = BOARD.model_copy(update=changes)
    run_replay(job, directory, 1)
    assert directory.repetition(job.cell, LATER) is not None


def test_the_firmware_of_a_microcontroller_is_not_its_identity(
    solved: Path, tmp_path: Path, bench: Bench
) -> None:
    directory, job = tried(solved, tmp_path)
    bench.board = BOARD.model_copy(update={"kernel": "firmware 2"})
    run_replay(replace(job, description=load_description("emulated-m4f")), directory, 1)
    assert directory.repetition(job.cell, LATER) is not None


def test_a_profile_from_before_a_new_kernel_is_of_the_same_board(
    solved: Path, tmp_path: Path, bench: Bench
) -> None:
    directory, job = tried(solved, tmp_path)
    forget(directory, job.cell, ReplayPlace(repetition=0))
    bench.board = BOARD.model_copy(update={"kernel": "6.2"})
    run_replay(job, directory, 1)
    assert directory.repetition(job.cell, LATER) is not None


def test_nothing_runs_on_another_board(
    solved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session knows nothing but its identity."""
    other = BOARD.model_copy(update={"serial": "2"})
    session = SimpleNamespace(facts=SimpleNamespace(identity=other))
    monkeypatch.setattr("replay.running.opening.open_replay", lambda *_, **__: nullcontext(session))
    directory, job = tried(solved, tmp_path)
    with pytest.raises(RequestRefused, match="serial was 1, and is 2 now"):
        run_replay(job, directory, 1)

"""Options of ``run`` around training: a network that PyTorch exported, on this computer."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

import cli
from devices.documents.document import read_json
from devices.errors import RequestRefused
from devices.replay import ReplayReport, Score
from networks.models import build_model
from networks.training.evaluation import evaluation_of
from networks.training.initial import initial_values
from replay.evaluation import HeldOutSamples
from tests.support.networks.training import execute
from tests.support.onboard.kernels import KernelLibrary, compile_library
from tests.support.paths import REFERENCES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pictures")]

EXPORTED = REFERENCES / "exported"
BATCH = 4
STEPS_NAME = "joulewright.steps"


def command(directory: Path, *words: str) -> int:
    with contextlib.chdir(directory):
        return cli.main(list(words))


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory, without_pictures: None) -> Path:
    """A directory with a network's file, samples, and a schedule for this computer."""
    directory = tmp_path_factory.mktemp("options")
    shutil.copy(EXPORTED / "dropping.pt2", directory)
    with np.load(EXPORTED / "dropping.npz") as arrays:
        samples = {name: arrays[f"input.{name}"] for name in ("wave", "labels")}
    np.savez(directory / "samples.npz", **samples)
    np.savez(directory / "few.npz", **{name: values[:3] for name, values in samples.items()})
    quick = ("--no-storage", "--no-additivity", "--blocks", "1")
    assert (
        command(directory, "profile", "--device", "local", "--model", "dropping.pt2", *quick) == 0
    )
    budget = ("--ram-budget", "100%", "--no-paging", "--time-limit", "20")
    assert command(directory, "solve", "--profile", "local", *budget, "--out", "net.json") == 0
    return directory


def run(directory: Path, out: str, *words: str) -> int:
    where = ("--schedule", "net.json", "--device", "local", "--out", out)
    return command(directory, "run", *where, "--steps", "3", *words)


def test_scores_before_and_after_training(
    solved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(solved, "scored", "--batches", "samples.npz", "--evaluate", "samples.npz") == 0
    printed = capsys.readouterr().out
    scores = read_json(solved / "scored" / "replay.json", ReplayReport).held_out
    assert scores is not None
    assert (scores.samples, scores.left_out) == (8, 2)
    assert "evaluated on this computer" in printed
    assert "2 more samples do not fill a batch" in printed
    with np.load(EXPORTED / "dropping.npz") as recorded:
        assert scores.before.loss == pytest.approx(float(recorded["loss"]), rel=1e-5)
        assert scores.before.accuracy == pytest.approx(float(recorded["accuracy"]))
        samples = {name: recorded[f"input.{name}"] for name in ("wave", "labels")}
    step = build_model(str(EXPORTED / "dropping.pt2"))
    evaluation = evaluation_of(step)
    library = KernelLibrary(compile_library(tmp_path, "in-tree", ["-O1"]))
    trained = load_file(solved / "scored" / "trained.safetensors")
    values = {**initial_values(step, 0), **trained}
    losses = []
    for begin in (0, BATCH):
        batch = {name: each[begin : begin + BATCH] for name, each in samples.items()}
        batch["labels"] = batch["labels"].astype(np.int32)
        start = {
            tensor.name: {**values, **batch}[tensor.name]
            for tensor in evaluation.step.tensors
            if tensor.home is not None
        }
        losses.append(float(execute(evaluation.step, library, start)[evaluation.loss][0]))
    assert scores.after.loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_what_was_trained_is_kept_if_it_cannot_be_evaluated(
    solved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Memory that was free before training is not free after it."""
    refused = RequestRefused("evaluation on this computer takes more than is free")
    monkeypatch.setattr(HeldOutSamples, "score", Mock(side_effect=[Score(loss=1.0), refused]))
    words = ("--batches", "samples.npz", "--evaluate", "samples.npz")
    assert run(solved, "unscored", *words) == 2
    said = capsys.readouterr()
    assert "evaluation on this computer takes more than is free" in said.err
    assert "predicted" in said.out
    report = read_json(solved / "unscored" / "replay.json", ReplayReport)
    assert (report.steps, report.held_out) == (3, None)
    assert (solved / "unscored" / "trained.safetensors").exists()


def test_too_few_samples_are_refused_before_training(
    solved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(solved, "few", "--evaluate", "few.npz") == 2
    assert "few.npz: contains 3 samples, and a batch of" in capsys.readouterr().err
    assert not (solved / "few").exists()


@pytest.fixture(scope="module")
def begun(solved: Path) -> Path:
    """The directory, with a run of three steps whose third batch has been used in part."""
    assert run(solved, "begun", "--batches", "samples.npz") == 0
    return solved


def arrays_of(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path) as found:
        return dict(found)


def test_a_run_that_goes_on_has_the_bits_of_one_that_did_not_stop(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Samples, masks of dropout and counters go on where the earlier run has ended."""
    samples = ("--batches", "samples.npz")
    assert run(begun, "second", *samples, "--from", "begun/parameters.npz") == 0
    assert "training went on after step 3" in capsys.readouterr().out
    assert run(begun, "whole", *samples, "--steps", "6") == 0
    values, expected = (arrays_of(begun / out / "parameters.npz") for out in ("second", "whole"))
    assert values.keys() == expected.keys()
    assert expected[STEPS_NAME] == 6
    assert all(values[name].tobytes() == expected[name].tobytes() for name in expected)
    weights = [(begun / out / "trained.safetensors").read_bytes() for out in ("second", "whole")]
    assert weights[0] == weights[1]
    reports = [read_json(begun / out / "replay.json", ReplayReport) for out in ("second", "whole")]
    assert [each.steps_before for each in reports] == [3, None]
    assert reports[0].losses == reports[1].losses[3:]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({STEPS_NAME: None}, "does not state how many steps were trained"),
        ({STEPS_NAME: np.float32(3)}, "is not a number from 0 to"),
        ({STEPS_NAME: np.int64(-1)}, "is not a number from 0 to"),
        ({"linear.weight.velocity": np.float32(1)}, "has values of linear.weight.velocity, which"),
        ({"": None}, "which dropping.pt2 trains"),
        ({"": np.float32(1)}, "is float32 with 1 elements; dropping.pt2 trains"),
    ],
    ids=["no steps", "half steps", "steps below zero", "momentum", "a value less", "another size"],
)
def test_values_that_the_step_does_not_train_are_refused(
    begun: Path, changes: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The empty name stands for any of the step's tensors."""
    arrays = arrays_of(begun / "begun" / "parameters.npz")
    for name, value in changes.items():
        chosen = name or next(each for each in arrays if each != STEPS_NAME)
        arrays.pop(chosen, None)
        arrays.update({} if value is None else {chosen: value})
    np.savez(begun / "other.npz", **arrays)
    assert run(begun, "refused", "--from", "other.npz", "--dry-run") == 2
    assert said in capsys.readouterr().err
    assert not (begun / "refused").exists()

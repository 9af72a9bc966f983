"""Options of ``run`` around training: a network that PyTorch exported, on this computer."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
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

pytestmark = pytest.mark.slow

EXPORTED = REFERENCES / "exported"
BATCH = 4


def command(directory: Path, *words: str) -> int:
    with contextlib.chdir(directory):
        return cli.main(list(words))


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
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

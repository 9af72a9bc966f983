"""An ONNX file, from its profile to a trained copy of it, on this computer."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto
from safetensors.numpy import load_file

import cli
from tests.support.networks.onnx_files import evaluated, initializers_of, model, node, saved, tensor

pytestmark = pytest.mark.slow

SAMPLES, RATE = 4, 0.3


def run(directory: Path, *words: str) -> int:
    with contextlib.chdir(directory):
        return cli.main(list(words))


def read(path: Path) -> ModelProto:
    return ModelProto.FromString(path.read_bytes())


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a network's file, samples, this computer's costs, and a schedule."""
    directory = tmp_path_factory.mktemp("onnx")
    random = np.random.default_rng(0)
    arrays = {
        "w": random.normal(size=(3, 2, 3, 3)).astype(np.float32),
        **{name: random.uniform(0.5, 1, 3).astype(np.float32) for name in ("b", "s", "m", "v")},
    }
    nodes = [
        node("Conv", "image w", "x", auto_pad="SAME_UPPER"),
        node("BatchNormalization", "x s b m v", "n"),
        node("Tanh", "n", "t"),
        node("GlobalAveragePool", "t", "p"),
        node("Flatten", "p", "y"),
    ]
    inputs, outputs = [tensor("image", "N", 2, 4, 4)], [tensor("y", "N", 3)]
    saved(directory / "net.onnx", model(nodes, inputs, arrays, outputs))
    image = random.normal(size=(SAMPLES, 2, 4, 4)).astype(np.float32)
    target = random.normal(size=(SAMPLES, 3)).astype(np.float32)
    np.savez(directory / "samples.npz", image=image, target=target)
    words = ("--model", "net.onnx", "--batch", str(SAMPLES), "--loss", "mse")
    quick = ("--no-storage", "--no-additivity", "--blocks", "1")
    assert run(directory, "profile", "--device", "local", *words, *quick) == 0
    budget = ("--ram-budget", "100%", "--no-paging", "--time-limit", "20", "--out", "net.json")
    assert run(directory, "solve", "--profile", "local", *budget) == 0
    return directory


def test_a_run_writes_the_file_with_trained_values(
    solved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--steps", "20", "--learning-rate", str(RATE), "--batches", "samples.npz")
    command = ("run", "--schedule", "net.json", "--device", "local", "--out", "run")
    assert run(solved, *command, *words) == 0
    assert "model     run/trained.onnx" in capsys.readouterr().out
    before, after = read(solved / "net.onnx"), read(solved / "run" / "trained.onnx")
    with np.load(solved / "samples.npz") as samples:
        losses = [
            float(np.mean((evaluated(each, {"image": samples["image"]}) - samples["target"]) ** 2))
            for each in (before, after)
        ]
    assert losses[1] < 0.9 * losses[0]
    weights, trained = load_file(solved / "run" / "trained.safetensors"), initializers_of(after)
    assert weights.keys() == trained.keys()
    assert all(np.array_equal(weights[name], trained[name]) for name in trained)
    kept = initializers_of(before)
    assert {name for name in kept if np.array_equal(kept[name], trained[name])} == {"m", "v"}
    assert after.graph.node == before.graph.node


def test_solve_says_that_statistics_stay(solved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--ram-budget", "100%", "--no-paging", "--time-limit", "5", "--out", "again.json")
    assert run(solved, "solve", "--profile", "local", *words) == 0
    lines = capsys.readouterr().err.splitlines()
    remark = "net.onnx: fine-tuning: batch norms keep the file's statistics, and nothing is"
    assert sum(line.startswith(remark) for line in lines) == 1

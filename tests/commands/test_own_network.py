"""A network that PyTorch exported, from its file to trained weights, on this computer."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import cli
from devices.documents.document import read_json
from devices.replay import ReplayReport
from networks.models import build_model
from tests.support.paths import REFERENCES

pytestmark = pytest.mark.slow

EXPORTED = REFERENCES / "exported"
STEPS = 3


def run(directory: Path, *words: str) -> int:
    with contextlib.chdir(directory):
        return cli.main(list(words))


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a network's file, its samples, and this computer's costs of it."""
    directory = tmp_path_factory.mktemp("own network")
    shutil.copy(EXPORTED / "waves.pt2", directory)
    with np.load(EXPORTED / "waves.npz") as arrays:
        samples = {name: arrays[f"input.{name}"] for name in ("wave", "target")}
    np.savez(directory / "samples.npz", **samples)
    quick = ("--no-storage", "--no-additivity", "--blocks", "1")
    assert run(directory, "profile", "--device", "local", "--model", "waves.pt2", *quick) == 0
    return directory


def scheduled(directory: Path, name: str, *words: str) -> str:
    out = f"{name}.json"
    budget = ("--ram-budget", "100%", "--no-paging", "--time-limit", "20")
    assert run(directory, "solve", "--profile", "local", *budget, "--out", out, *words) == 0
    return out


def test_trained_weights_are_those_of_pytorch(profiled: Path) -> None:
    schedule = scheduled(profiled, "all")
    words = ("--schedule", schedule, "--device", "local", "--steps", str(STEPS), "--out", "run")
    assert run(profiled, "run", *words, "--batches", "samples.npz") == 0
    report = read_json(profiled / "run" / "replay.json", ReplayReport)
    assert all(check.identical for check in report.values)
    found = load_file(profiled / "run" / "trained.safetensors")
    with np.load(EXPORTED / "waves.npz") as arrays:
        expected = {
            key.removeprefix("trained."): arrays[key] for key in arrays if key.startswith("trained")
        }
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].shape == values.shape, name
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
    # Frozen parameters and the count of steps are exact.
    for name in ("frozen.weight", "second.bias", "norm.num_batches_tracked"):
        assert found[name].tobytes() == expected[name].tobytes(), name


def test_one_step_goes_as_far_as_the_learning_rate_says(profiled: Path) -> None:
    schedule = scheduled(profiled, "rate")
    words = ("--schedule", schedule, "--device", "local", "--steps", "1", "--out", "rate")
    run(profiled, "run", *words, "--batches", "samples.npz", "--learning-rate", "0.5")
    found = load_file(profiled / "rate" / "trained.safetensors")
    file = build_model(str(EXPORTED / "waves.pt2")).file
    assert file is not None
    with np.load(EXPORTED / "waves.npz") as arrays:
        for name in ("output.weight", "second.weight", "norm.bias"):
            expected = file.values[name] - 0.5 * arrays[f"gradient.{name}"]
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_selection_of_parameters_is_kept_from_solve_to_run(profiled: Path) -> None:
    schedule = scheduled(profiled, "head", "--train", "head")
    assert run(profiled, "run", "--schedule", schedule, "--device", "local", "--out", "head") == 0
    found = load_file(profiled / "head" / "trained.safetensors")
    file = build_model(str(EXPORTED / "waves.pt2")).file
    assert file is not None
    changed = {name for name in found if not np.array_equal(found[name], file.values[name])}
    statistics = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert changed == {"output.weight", "output.bias", *statistics}


def test_adapters_are_trained_and_written_beside_the_frozen_weights(profiled: Path) -> None:
    schedule = scheduled(profiled, "lora", "--lora", "2")
    words = ("--device", "local", "--steps", str(STEPS), "--out", "lora")
    assert run(profiled, "run", "--schedule", schedule, *words) == 0
    report = read_json(profiled / "lora" / "replay.json", ReplayReport)
    assert all(check.identical for check in report.values)
    found = load_file(profiled / "lora" / "trained.safetensors")
    step = build_model(str(EXPORTED / "waves.pt2"), lora="2")
    assert step.file is not None
    assert found.keys() == {*step.file.values, *(each.name for each in step.adapters)}
    for name, value in step.file.values.items():
        if not name.startswith("norm."):  # statistics
            assert found[name].tobytes() == value.tobytes(), name
    for adapter in step.adapters:
        assert found[adapter.name].shape == adapter.shape
        assert found[adapter.name].any()


def test_a_file_that_changed_since_solving_is_refused(
    profiled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = scheduled(profiled, "changed")
    original = (profiled / "waves.pt2").read_bytes()
    shutil.copy(EXPORTED / "beyond_norm.pt2", profiled / "waves.pt2")
    capsys.readouterr()
    assert run(profiled, "run", "--schedule", schedule, "--device", "local") == 2
    assert "the file has changed since" in capsys.readouterr().err
    (profiled / "waves.pt2").unlink()
    assert run(profiled, "run", "--schedule", schedule, "--device", "local") == 2
    assert "waves.pt2: cannot be read: No such file" in capsys.readouterr().err
    (profiled / "waves.pt2").write_bytes(original)

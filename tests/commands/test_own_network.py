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
from solver.problem.schedule import Compute, Schedule
from tests.support.paths import REFERENCES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pictures")]

EXPORTED = REFERENCES / "exported"
STEPS = 3


def run(directory: Path, *words: str) -> int:
    with contextlib.chdir(directory):
        return cli.main(list(words))


def profile(directory: Path, name: str) -> None:
    """Put a network's file and its samples into a directory, and this computer's costs of it."""
    shutil.copy(EXPORTED / f"{name}.pt2", directory)
    with np.load(EXPORTED / f"{name}.npz") as arrays:
        samples = {
            key.removeprefix("input."): arrays[key] for key in arrays if key.startswith("input.")
        }
    np.savez(directory / "samples.npz", **samples)  # type: ignore[arg-type]
    quick = ("--no-storage", "--no-additivity", "--blocks", "1")
    assert run(directory, "profile", "--device", "local", "--model", f"{name}.pt2", *quick) == 0


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a network's file, its samples, and this computer's costs of it."""
    directory = tmp_path_factory.mktemp("own network")
    profile(directory, "waves")
    return directory


def scheduled(directory: Path, name: str, *words: str, budget: str = "100%") -> str:
    out = f"{name}.json"
    words = ("--ram-budget", budget, "--no-paging", "--time-limit", "20", "--out", out, *words)
    assert run(directory, "solve", "--profile", "local", *words) == 0
    return out


def assert_trained_like_pytorch(directory: Path, name: str, schedule: str) -> None:
    """Train on the recorded inputs: equal checksums, and in the end the recorded weights."""
    words = ("--schedule", schedule, "--device", "local", "--steps", str(STEPS), "--out", "run")
    assert run(directory, "run", *words, "--batches", "samples.npz") == 0
    report = read_json(directory / "run" / "replay.json", ReplayReport)
    assert report.values
    assert all(check.identical for check in report.values)
    found = load_file(directory / "run" / "trained.safetensors")
    with np.load(EXPORTED / f"{name}.npz") as arrays:
        expected = {
            key.removeprefix("trained."): arrays[key] for key in arrays if key.startswith("trained")
        }
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key].shape == values.shape, key
        np.testing.assert_allclose(found[key], values, rtol=1e-5, atol=1e-6, err_msg=key)


def test_trained_weights_are_those_of_pytorch(profiled: Path) -> None:
    assert_trained_like_pytorch(profiled, "waves", scheduled(profiled, "all"))
    found = load_file(profiled / "run" / "trained.safetensors")
    # Frozen parameters and the count of steps are exact.
    with np.load(EXPORTED / "waves.npz") as arrays:
        for name in ("frozen.weight", "second.bias", "norm.num_batches_tracked"):
            assert found[name].tobytes() == arrays[f"trained.{name}"].tobytes(), name


@pytest.mark.parametrize("name", ["classifier", "keywords"])
def test_recurrent_networks_are_trained_in_less_ram(name: str, tmp_path: Path) -> None:
    profile(tmp_path, name)
    # With the workspace of the project's own matrix product, 92 % is the least. Any schedule will
    # do: the search ends with its first one.
    ends_early = ("--gap", "0.9", "--time-limit", "120")
    schedule = scheduled(tmp_path, "less", *ends_early, budget="95%")
    solved = read_json(tmp_path / schedule, Schedule)
    computed = [action.op for action in solved.actions if isinstance(action, Compute)]
    assert len(computed) > len(set(computed))
    assert_trained_like_pytorch(tmp_path, name, schedule)


def test_one_step_goes_as_far_as_the_learning_rate_says(profiled: Path) -> None:
    schedule = scheduled(profiled, "rate")
    words = ("--schedule", schedule, "--device", "local", "--steps", "1", "--out", "rate")
    words += ("--batches", "samples.npz", "--learning-rate", "0.5")
    words += ("--save-gradients", "gradients.safetensors")
    assert run(profiled, "run", *words) == 0
    found = load_file(profiled / "rate" / "trained.safetensors")
    file = build_model(str(EXPORTED / "waves.pt2")).file
    assert file is not None
    with np.load(EXPORTED / "waves.npz") as arrays:
        for name in ("output.weight", "second.weight", "norm.bias"):
            expected = file.values[name] - 0.5 * arrays[f"gradient.{name}"]
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)
        gradients = load_file(profiled / "gradients.safetensors")
        expected_gradients = {
            key.removeprefix("gradient."): arrays[key] for key in arrays if key.startswith("grad")
        }
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in expected_gradients.items():
        np.testing.assert_allclose(gradients[name], gradient, rtol=1e-5, atol=1e-6, err_msg=name)
        assert gradients[name].shape == gradient.shape


def test_the_first_step_of_a_warm_up_goes_a_part_of_the_way_and_weights_decay(
    profiled: Path,
) -> None:
    schedule = scheduled(profiled, "warm")
    words = ("--schedule", schedule, "--device", "local", "--steps", "1", "--out", "warm")
    words += ("--batches", "samples.npz", "--learning-rate", "0.5")
    words += ("--rate-schedule", "warm-up:4", "--weight-decay", "0.25")
    assert run(profiled, "run", *words) == 0
    found = load_file(profiled / "warm" / "trained.safetensors")
    file = build_model(str(EXPORTED / "waves.pt2")).file
    assert file is not None
    with np.load(EXPORTED / "waves.npz") as arrays:
        for name in ("output.weight", "second.weight", "norm.bias"):
            gradient = arrays[f"gradient.{name}"] + 0.25 * file.values[name]
            expected = file.values[name] - 0.125 * gradient
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

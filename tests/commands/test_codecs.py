"""``--codecs``: codes of activations, from ``profile`` to the values of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devices.documents.document import read_json, read_yaml
from devices.profile import DeviceProfile
from devices.replay import ReplayReport
from solver.files.solved import read_solved
from tests.commands.test_slices import ANY, QUICK, command

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pictures")]


def test_a_step_with_codecs_in_slices_runs_with_the_values_of_the_step_without(
    tmp_path: Path,
) -> None:
    model = ("--model", "dscnn", "--slices", "8KiB:16KiB")
    assert command(tmp_path, "profile", "--device", "local", *model, *QUICK) == 0
    profile = read_yaml(tmp_path / "results" / "profiles" / "local.yaml", DeviceProfile)
    measured = {spec.kind for spec in profile.by_spec}
    assert {"relu.input_gradient", "relu_bits.forward", "relu_bits.input_gradient"} <= measured
    solve = ("solve", "--profile", "local", *model, "--parameters-in", "storage", "--strict")
    words = ("--codecs", "all", "--ram-budget", "50%", *ANY, "--out", "s.json")
    assert command(tmp_path, *solve, *words) == 0
    graph, _ = read_solved(tmp_path / "s.json", tmp_path / "s.graph.json")
    assert graph.origin is not None
    assert graph.origin.codecs
    run = ("run", "--device", "local", "--schedule", "s.json", "--steps", "2", "--out", "run")
    assert command(tmp_path, *run) == 0
    report = read_json(tmp_path / "run" / "replay.json", ReplayReport)
    assert report.origin["codecs"]
    (check,) = report.values
    assert (check.against, check.identical) == ("the unscheduled step on the board", True)
    words = ("--schedule", "s.json", "--format", "c", "--out", "project")
    assert command(tmp_path, "export", *words) == 0
    assert "jw_relu_bits_forward" in "".join(
        path.read_text() for path in (tmp_path / "project").rglob("*.c")
    )


def test_the_cheaper_of_the_steps_without_and_with_codecs_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("solve", "--profile", "m4", "--model", "vgg16_cifar", "--budget-covers", "activations")
    words += ("--ram-budget", "50%", "--gap", "0.05", "--time-limit", "60")
    words += ("--out", "s.json", "--json")
    assert command(tmp_path, *words) == 0
    document = json.loads(capsys.readouterr().out)
    plain, coded = document["codecs"]
    assert "codecs" not in plain
    assert coded["codecs"] is True
    assert coded["energy_j"] < plain["energy_j"]
    assert document["energy_j"] == coded["energy_j"]
    assert 0 < document["bound_of_all_j"] <= document["energy_bound_j"]
    graph, _ = read_solved(tmp_path / "s.json", tmp_path / "s.graph.json")
    assert graph.name == "vgg16_cifar, batch 1, with codecs, on m4"
    assert command(tmp_path, *words, "--codecs", "none") == 0
    assert "codecs" not in json.loads(capsys.readouterr().out)


def test_whole_layers_with_codecs_come_before_slices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A max pooling's gradient without codes has the image twice, which is more than the budget."""
    words = ("solve", "--profile", "m4", "--model", "vgg16_cifar", "--budget-covers", "activations")
    words += ("--ram-budget", "560KiB", *ANY, "--out", "s.json", "--json")
    assert command(tmp_path, *words) == 0
    assert "slices" not in capsys.readouterr().err
    graph, _ = read_solved(tmp_path / "s.json", tmp_path / "s.graph.json")
    assert graph.origin is not None
    assert (graph.origin.codecs, graph.origin.slices) == (True, None)


def test_codecs_that_save_little_are_not_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("solve", "--profile", "m4", "--model", "resnet18_cifar", *ANY)
    assert command(tmp_path, *words, "--ram-budget", "100%", "--out", "s.json", "--json") == 0
    assert "codecs" not in json.loads(capsys.readouterr().out)

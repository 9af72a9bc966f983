"""``--accumulate``: the batch in parts, from ``solve`` to the gradients of a step."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import cli
from devices.documents.document import read_json
from devices.replay import ReplayReport
from tests.support.paths import REFERENCES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pictures")]

EXPORTED = REFERENCES / "exported"


def command(directory: Path, *words: str) -> int:
    with contextlib.chdir(directory):
        return cli.main(list(words))


def test_gradients_of_parts_are_those_that_pytorch_has_of_the_whole_batch(tmp_path: Path) -> None:
    shutil.copy(EXPORTED / "in_place.pt2", tmp_path)
    with np.load(EXPORTED / "in_place.npz") as recorded:
        arrays = dict(recorded)
    samples = {key.removeprefix("input."): arrays[key] for key in arrays if "input." in key}
    np.savez(tmp_path / "samples.npz", **samples)
    quick = ("--no-storage", "--no-additivity", "--blocks", "1", "--accumulate", "2")
    model = ("--device", "local", "--model", "in_place.pt2")
    assert command(tmp_path, "profile", *model, *quick) == 0
    budget = ("--ram-budget", "100%", "--no-paging", "--time-limit", "20", "--out", "net.json")
    assert command(tmp_path, "solve", "--profile", "local", *budget) == 0
    words = ("--batches", "samples.npz", "--evaluate", "samples.npz", "--steps", "1")
    words += ("--save-gradients", "gradients.safetensors", "--out", "run")
    assert command(tmp_path, "run", "--schedule", "net.json", "--device", "local", *words) == 0
    report = read_json(tmp_path / "run" / "replay.json", ReplayReport)
    assert report.origin["accumulate"] == 2
    assert all(check.identical for check in report.values)
    assert report.losses == pytest.approx([float(arrays["loss"])], rel=1e-5)
    assert report.held_out is not None
    assert report.held_out.before.loss == pytest.approx(float(arrays["loss"]), rel=1e-5)
    found = load_file(tmp_path / "gradients.safetensors")
    for name, gradient in found.items():
        expected = arrays[f"gradient.{name}"]
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6, err_msg=name)
    assert len(found) == sum("gradient." in key for key in arrays)


def test_the_cheapest_number_of_parts_that_fits_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without recomputing and paging, the batch fits in two parts, and costs more in four."""
    words = ("--profile", "m4", "--model", "transformer", "--batch", "4", "--time-limit", "90")
    words += ("--accumulate", "auto", "--no-paging", "--no-remat", "--ram-budget", "80%")
    assert command(tmp_path, "solve", *words, "--json", "--out", "s.json") == 0
    document = json.loads(capsys.readouterr().out)
    whole, halves, quarters = document["accumulation"]
    assert [row["parts"] for row in (whole, halves, quarters)] == [1, 2, 4]
    assert whole["energy_j"] is None
    assert halves["energy_j"] == document["energy_j"] < quarters["energy_j"]
    graph = json.loads((tmp_path / "s.graph.json").read_text())
    assert graph["origin"]["accumulate"] == 2


def test_a_network_that_mixes_samples_is_solved_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--profile", "m4", "--model", "digits", "--batch", "4", "--ram-budget", "100%")
    assert command(tmp_path, "solve", *words, "--accumulate", "auto", "--out", "s.json") == 0
    assert "it normalises with the statistics of all samples; the batch is solved as a whole" in (
        capsys.readouterr().err
    )
    assert command(tmp_path, "solve", *words, "--accumulate", "2") == 2
    assert "the batch cannot be split at stem.norm" in capsys.readouterr().err
    assert command(tmp_path, "solve", *words, "--accumulate", "3") == 2
    assert "4 samples cannot be split into 3 equal parts" in capsys.readouterr().err


def test_a_sweep_solves_every_number_of_parts(tmp_path: Path) -> None:
    words = ("--profile", "m4", "--model", "linear", "--batch", "4", "--accumulate", "1", "2")
    words += ("--ram-budgets", "100%", "--time-limit", "5", "--no-baselines", "--out", "sweep")
    assert command(tmp_path, "sweep", *words) == 0
    rows = (tmp_path / "sweep" / "sweep.csv").read_text()
    assert '"linear, batch 4, on m4"' in rows
    assert '"linear, batch 4, in 2 parts, on m4"' in rows

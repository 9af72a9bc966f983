"""``--slices``: large weights in parts, from ``profile`` to the trained weights."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import cli
from devices import description
from devices.documents.document import read_json, read_yaml
from devices.plan import Compute, ExecutionPlan
from devices.profile import DeviceProfile
from devices.quantities import Slices
from devices.replay import ReplayReport
from networks.exported import read_network
from networks.models import build_model
from replay.running.session import ReplaySession
from replay.runs import training_step_of
from solver.files.solved import read_solved
from tests.support.paths import REFERENCES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pictures", "short_searches")]

EXPORTED = REFERENCES / "exported"
QUICK = ("--no-additivity", "--blocks", "1", "--storage-budget-mib", "64")
ANY = ("--gap", "0.9", "--time-limit", "60")
"""Any schedule will do: the search ends long before its limit, unless the computer is busy."""


def command(directory: Path, *words: str) -> int:
    with contextlib.chdir(directory):
        return cli.main(list(words))


def test_a_step_in_slices_runs_with_the_values_of_whole_layers(tmp_path: Path) -> None:
    """resnet8's largest weight, its gradient and velocity take more than the budget."""
    profile = ("profile", "--device", "local", "--model", "resnet8", "--slices", "32KiB", *QUICK)
    assert command(tmp_path, *profile, "--optimizer", "momentum") == 0
    solve = ("solve", "--profile", "local", "--parameters-in", "storage", "--codecs", "none", *ANY)
    assert command(tmp_path, *solve, "--ram-budget", "470KiB", "--out", "sliced.json") == 0
    words = ("--device", "local", "--steps", "3", "--save-gradients", "gradients.safetensors")
    assert command(tmp_path, "run", "--schedule", "sliced.json", *words, "--out", "run") == 0
    report = read_json(tmp_path / "run" / "replay.json", ReplayReport)
    assert report.origin["slices"] == 32 << 10
    (check,) = report.values
    assert (check.against, check.steps) == ("the unscheduled step on the board", 3)
    assert check.identical
    assert check.values > 100

    # The same training without slices, in more RAM, ends with the same values.
    whole = ("--slices", "none", "--model", "resnet8", "--optimizer", "momentum")
    assert command(tmp_path, *solve, *whole, "--ram-budget", "2MiB", "--out", "whole.json") == 0
    words = ("--device", "local", "--steps", "3", "--save-gradients", "whole.safetensors")
    assert command(tmp_path, "run", "--schedule", "whole.json", *words, "--out", "whole") == 0
    ours, theirs = (np.load(tmp_path / run / "parameters.npz") for run in ("run", "whole"))
    assert set(ours) == set(theirs)
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)

    # Each goes on with what the other has trained.
    for schedule, earlier in (("sliced", "whole"), ("whole", "run")):
        words = ("--device", "local", "--steps", "1", "--from", f"{earlier}/parameters.npz")
        where = ("--schedule", f"{schedule}.json", "--out", f"{schedule} on")
        assert command(tmp_path, "run", *words, *where) == 0
    ours, theirs = (
        np.load(tmp_path / f"{run} on" / "parameters.npz") for run in ("sliced", "whole")
    )
    assert set(ours) == set(theirs)
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    ours, theirs = (load_file(tmp_path / f"{n}.safetensors") for n in ("gradients", "whole"))
    assert set(ours) == set(theirs)
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def test_activations_in_parts_run_with_the_values_of_whole_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of weights are compared with rows and columns of whole ones, and joined in files.

    What is timed unscheduled are the parts, without the copies that such comparisons take.
    """
    timed_plans: list[ExecutionPlan] = []
    run_steps = ReplaySession.run

    def seen(session: ReplaySession, plan: int, *rest: Any, watched: bool, **options: Any) -> Any:
        if not watched:
            timed_plans.append(session.plans[plan])
        return run_steps(session, plan, *rest, watched=watched, **options)

    monkeypatch.setattr(ReplaySession, "run", seen)
    model = ("--model", "digits", "--optimizer", "adam", "--slices", "512:1KiB")
    assert command(tmp_path, "profile", "--device", "local", *model, *QUICK) == 0
    solve = ("solve", "--profile", "local", "--parameters-in", "storage", *ANY)
    words = ("--slices", "512:1KiB", "--ram-budget", "100%", "--out", "parts.json")
    assert command(tmp_path, *solve, *words) == 0
    graph, _ = read_solved(tmp_path / "parts.json", tmp_path / "parts.graph.json")
    assert graph.origin is not None
    assert graph.origin.slices == Slices(512, 1024)
    run = ("run", "--device", "local", "--schedule", "parts.json", "--steps", "2")
    assert command(tmp_path, *run, "--out", "run") == 0
    report = read_json(tmp_path / "run" / "replay.json", ReplayReport)
    assert report.origin["slices"] == "512:1024"
    (check,) = report.values
    assert (check.against, check.identical) == ("the unscheduled step on the board", True)
    with np.load(tmp_path / "run" / "parameters.npz") as found:
        assert found["block2.pointwise.conv.weight"].size == 32 * 16
        assert not [name for name in found if "[" in name]
    assert report.unscheduled_s is not None
    (timed,) = timed_plans[-1:]
    step = training_step_of(graph)
    executed = [action.does.op for action in timed.actions if isinstance(action.does, Compute)]
    assert executed == [op.name for op in step.ops]


@pytest.mark.parametrize("slices", ["256", "256:600"])
def test_files_of_a_users_network_have_whole_tensors(slices: str, tmp_path: Path) -> None:
    """With activations in parts, its recurrent layers are unrolled."""
    shutil.copy(EXPORTED / "keywords.pt2", tmp_path)
    with np.load(EXPORTED / "keywords.npz") as recorded:
        arrays = dict(recorded)
    samples = {key.removeprefix("input."): arrays[key] for key in arrays if "input." in key}
    np.savez(tmp_path / "samples.npz", **samples)
    model = ("--device", "local", "--model", "keywords.pt2", "--slices", slices)
    assert command(tmp_path, "profile", *model, *QUICK) == 0
    budget = ("--parameters-in", "storage", "--ram-budget", "100%", *ANY)
    assert command(tmp_path, "solve", "--profile", "local", *budget, "--out", "net.json") == 0
    words = ("--batches", "samples.npz", "--evaluate", "samples.npz", "--steps", "1")
    words += ("--save-gradients", "gradients.safetensors", "--out", "run")
    assert command(tmp_path, "run", "--schedule", "net.json", "--device", "local", *words) == 0
    report = read_json(tmp_path / "run" / "replay.json", ReplayReport)
    assert all(check.identical for check in report.values)
    assert report.losses == pytest.approx([float(arrays["loss"])], rel=1e-5)
    is_unrolled = [limit for limit in report.limits if "recurrent layers are unrolled" in limit]
    assert bool(is_unrolled) == (":" in slices)
    assert report.held_out is not None
    found = load_file(tmp_path / "gradients.safetensors")
    for name, gradient in found.items():
        expected = arrays[f"gradient.{name}"]
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6, err_msg=name)
    assert len(found) == sum("gradient." in key for key in arrays)
    before, after = (
        read_network(tmp_path / "keywords.pt2")[1].values,
        load_file(tmp_path / "run" / "trained.safetensors"),
    )
    assert before.keys() == after.keys()
    assert all(after[name].shape == before[name].shape for name in before)
    assert not np.array_equal(after["gru.weight_ih_l0"], before["gru.weight_ih_l0"])


def test_frozen_parts_are_only_read(tmp_path: Path) -> None:
    """Of one layer, the bias is trained, and the parts of the weight stay in storage."""
    model = ("--model", "resnet8", "--slices", "32KiB", "--train", "stage3.2.conv.bias")
    assert command(tmp_path, "profile", "--device", "local", *model, *QUICK) == 0
    solve = ("--parameters-in", "storage", "--ram-budget", "600KiB", *ANY)
    assert command(tmp_path, "solve", "--profile", "local", *solve, "--out", "s.json") == 0
    words = ("--device", "local", "--steps", "2", "--out", "run")
    assert command(tmp_path, "run", "--schedule", "s.json", *words) == 0
    report = read_json(tmp_path / "run" / "replay.json", ReplayReport)
    assert all(check.identical for check in report.values)
    assert report.storage is not None
    assert report.storage.written_bytes.predicted < 128 << 10


def test_resnet18_trains_in_a_mebibyte(tmp_path: Path) -> None:
    """Its parameters take 43 MiB, and one layer's weight, gradient and update 18 MiB.

    The kernels work in the small tiles of a microcontroller, whose workspace counts too.
    """
    local = (description.CATALOG / "local.yaml").read_text()
    small = local.replace("-march=native]", "-march=native, -DJW_SMALL_MEMORY=1]")
    (tmp_path / "small.yaml").write_text(small.replace("name: local", "name: small"))
    board = ("--device", "small.yaml")
    model = ("--model", "resnet18_cifar", "--slices", "256KiB")
    assert command(tmp_path, "profile", *board, *model, *QUICK) == 0
    solve = ("solve", "--profile", "small", "--parameters-in", "storage", "--codecs", "none", *ANY)
    assert command(tmp_path, *solve, "--ram-budget", "1MiB", "--out", "s.json") == 0
    run = ("run", *board, "--schedule", "s.json", "--steps", "1", "--out", "run")
    assert command(tmp_path, *run) == 0
    report = read_json(tmp_path / "run" / "replay.json", ReplayReport)
    (check,) = report.values
    assert check.identical
    assert check.values > 500
    assert report.memory.arena_bytes <= 1 << 20
    assert report.memory.process is not None


def test_slices_are_offered_where_no_whole_layers_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("solve", "--profile", "m4", "--model", "resnet8", "--parameters-in", "storage")
    words += ("--ram-budget", "220KiB", "--gap", "0.9", "--time-limit", "300")
    words += ("--codecs", "none", "--out", "s.json")
    assert command(tmp_path, *words, "--slices", "none") == 5
    capsys.readouterr()
    assert command(tmp_path, *words, "--json") == 0
    printed = capsys.readouterr()
    assert "no schedule of whole layers fits into 220.00 KiB" in printed.err
    document = json.loads(printed.out)
    assert [row["slices"] for row in document["slicings"]] == [55 << 10, 28160]
    graph, schedule = read_solved(tmp_path / "s.json", tmp_path / "s.graph.json")
    assert graph.origin is not None
    assert graph.origin.slices in {Slices(55 << 10), Slices(28160)}
    assert schedule.peak_bytes is not None
    assert schedule.peak_bytes <= 220 << 10


def test_whole_layers_are_kept_where_they_leave_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("solve", "--profile", "m4", "--model", "resnet8", "--parameters-in", "storage")
    words += ("--ram-budget", "95%", *ANY, "--out", "s.json", "--json")
    assert command(tmp_path, *words) == 0
    assert "slicings" not in json.loads(capsys.readouterr().out)
    graph, _ = read_solved(tmp_path / "s.json", tmp_path / "s.graph.json")
    assert graph.origin is not None
    assert graph.origin.slices is None


def test_the_cheaper_of_whole_layers_and_slices_is_kept_where_both_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("solve", "--profile", "m4", "--model", "resnet8", "--parameters-in", "storage")
    words += ("--ram-budget", "290KiB", *ANY, "--codecs", "none", "--json")
    assert command(tmp_path, *words, "--out", "s.json") == 0
    printed = capsys.readouterr()
    assert "besides (docs/slices.md)" in printed.err
    document = json.loads(printed.out)
    assert [row.get("slices") for row in document["slicings"]] == [None, f"{72 << 10}:{72 << 10}"]
    energies_j = [row["energy_j"] for row in document["slicings"] if row["energy_j"]]
    assert document["energy_j"] == min(energies_j)
    assert document["bound_of_all_j"] <= document["energy_bound_j"]


def test_the_step_in_slices_is_watched(tmp_path: Path) -> None:
    words = ("--device", "local", "--model", "digits", "--slices", "512:1KiB", "--no-storage")
    assert command(tmp_path, "profile", *words, "--blocks", "1") == 0
    profile = read_yaml(tmp_path / "results" / "profiles" / "local.yaml", DeviceProfile)
    (watched,) = profile.step_costs
    assert watched.network.slices == Slices(512, 1024)
    step = build_model("digits", slices=Slices(512, 1024))
    assert {place.op for place in watched.places} == {op.name for op in step.ops}


def test_a_microcontroller_is_profiled_in_the_slices_that_solve_will_offer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("profile", "--device", "emulated-m3-sd", "--model", "digits", "--batch", "8")
    said = {}
    for slices in ((), ("--slices", "none"), ("--slices", "9KiB"), ("--batch", "1")):
        assert command(tmp_path, *words, *slices, "--dry-run") == 0
        said[slices] = capsys.readouterr().err
    assert "digits is also measured in slices of 8.16 KiB:8.16 KiB" in said[()]
    assert not any("slices of" in each for slices, each in said.items() if slices)
    assert "62 distinct operations" in said["--slices", "none"]
    assert "62 distinct operations" not in said[()]


@pytest.mark.emulated
def test_what_solve_offers_on_a_microcontroller_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The weights of ``linear`` alone take four times the RAM of the board."""
    words = ("--device", "emulated-m3-sd", "--model", "linear", "--blocks", "1")
    assert command(tmp_path, "profile", *words, "--no-additivity") == 0
    assert "linear is only measured in slices of" in capsys.readouterr().err
    model = ("--model", "linear", "--parameters-in", "storage", "--time-limit", "10")
    solve = ("solve", "--profile", "emulated-m3-sd", *model, "--out", "s.json", "--json")
    assert command(tmp_path, *solve) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["slicings"]) == 2
    assert "predicted_operations" not in document
    run = ("run", "--device", "emulated-m3-sd", "--schedule", "s.json", "--steps", "1")
    assert command(tmp_path, *run, "--out", "run") == 0
    report = read_json(tmp_path / "run" / "replay.json", ReplayReport)
    assert all(check.identical for check in report.values)


def test_a_sweep_solves_every_size_of_slices(tmp_path: Path) -> None:
    words = ("sweep", "--profile", "m4", "--model", "linear", "--slices", "32KiB", "64KiB")
    words += ("--ram-budgets", "100%", "--time-limit", "5", "--no-baselines", "--out", "sweep")
    assert command(tmp_path, *words) == 0
    rows = (tmp_path / "sweep" / "sweep.csv").read_text()
    assert '"linear, batch 1, slices of 32.00 KiB, on m4"' in rows
    assert '"linear, batch 1, slices of 64.00 KiB, on m4"' in rows


@pytest.mark.parametrize("text", ["0", "10%", "-1KiB", "many"])
def test_what_is_no_size_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("solve", "--profile", "m4", "--model", "linear", f"--slices={text}")
    with pytest.raises(SystemExit, match="2"):
        command(tmp_path, *words, "--ram-budget", "50%")
    assert "is not the size of a slice" in capsys.readouterr().err

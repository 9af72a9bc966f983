"""Tensors without their zeros in storage, from ``profile`` to the values of a run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from devices import description
from devices.documents.document import dump_yaml, read_yaml, write_atomically
from devices.profile import AffinePageCost, DeviceProfile
from replay.directory import StoredRun
from solver.files.solved import read_solved
from solver.problem.schedule import PageOut
from tests.commands.test_slices import ANY, command

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pictures", "short_searches")]

MODEL = ("--model", "digits", "--batch", "8", "--blocks", "1", "--storage-budget-mib", "64")


def slower(cost: AffinePageCost) -> AffinePageCost:
    """Pages that cost so much that packing pays, as on a card; this computer's disk is fast."""
    each = cost.per_page_s + 1e-3
    joules = {"per_page_j": 15 * each, "fixed_j": 15 * cost.fixed_s}
    return cost.model_copy(update={"per_page_s": each, "sweep": (), **joules})


def test_a_step_that_packs_runs_with_the_values_of_one_that_does_not(tmp_path: Path) -> None:
    local = (description.CATALOG / "local.yaml").read_text()
    (tmp_path / "own.yaml").write_text(
        local.replace("dma: true", "dma: false")
        .replace("name: local", "name: own")
        .replace("matmul: auto", "matmul: in-tree")
    )
    assert command(tmp_path, "profile", "--device", "own.yaml", *MODEL) == 0
    file = tmp_path / "results" / "profiles" / "own.yaml"
    profile = read_yaml(file, DeviceProfile)
    assert {"packing.page_out", "packing.page_in"} <= {spec.kind for spec in profile.by_spec}
    rectified = [each for (name, _), each in profile.packed.items() if name.endswith("relu.output")]
    assert rectified
    for each in rectified:  # random weights: about half of the words, and a bitmap
        assert 0.3 < each.packed_bytes.median / each.bytes < 0.8
        assert len(each.runs_bytes) == 3
    assert profile.storage is not None
    storage = profile.storage.model_copy(
        update={"read": slower(profile.storage.read), "write": slower(profile.storage.write)}
    )
    write_atomically(file, dump_yaml(profile.changed(storage=storage)))

    solve = ("solve", "--profile", "own", *ANY, "--no-remat", "--codecs", "none")
    words = ("--ram-budget", "60%", "--out", "s.json")
    assert command(tmp_path, *solve, *words) == 0
    graph, schedule = read_solved(tmp_path / "s.json", tmp_path / "s.graph.json")
    paged = [action.tensor for action in schedule.actions if isinstance(action, PageOut)]
    packed = [graph.tensor[name] for name in paged if graph.tensor[name].packed_bytes]
    assert packed
    written = sum(graph.tensor[name].stored_bytes for name in paged)
    assert schedule.bytes_written_to_storage == written
    assert written < sum(graph.tensor[name].bytes for name in paged)

    run = ("run", "--device", "own.yaml", "--schedule", "s.json", "--steps", "3", "--out", "run")
    assert command(tmp_path, *run) == 0
    report = StoredRun.read(tmp_path / "run").report
    (check,) = report.values
    assert (check.against, check.identical) == ("the unscheduled step on the board", True)
    assert report.storage is not None
    count = report.storage.written_bytes
    saved = sum(tensor.bytes - tensor.stored_bytes for tensor in packed)
    assert abs(count.measured - count.predicted) < saved / 2
    count = report.storage.read_bytes
    assert abs(count.measured - count.predicted) < saved / 2

    words = ("--schedule", "s.json", "--format", "c", "--device", "own.yaml", "--out", "project")
    assert command(tmp_path, "export", *words) == 0
    readme = (tmp_path / "project" / "README.md").read_text()
    stated = report.storage.written_bytes.predicted
    assert f"{stated:,.0f} are written in a step, as expected of tensors without" in readme
    made = subprocess.run(["make"], cwd=tmp_path / "project", capture_output=True, text=True)
    assert made.returncode == 0, made.stderr

"""General profiles: a sweep of an emulated board, interrupted and finished, predicts a network."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from devices.description import load_description
from devices.operation import SIGNATURES, OpSpec
from devices.profile import DeviceProfile
from networks.models import build_model
from profiler.run.options import ProfileOptions
from profiler.run.run import ProgressEvent, profile_device
from replay.costs.general import Sweep
from solver.costing.costing import cost_graph
from solver.costing.terms import sort

pytestmark = [pytest.mark.emulated, pytest.mark.slow, pytest.mark.usefixtures("own_boards")]

BOARD = load_description("emulated-m4f")
QUICK = ProfileOptions(blocks=1, min_window_s=0.002, storage=False, idle_s=0.005)
SPECS = (OpSpec.of("relu.forward", elements=432),)

COMMON = {"conv2d", "linear", "batch_norm", "relu", "softmax", "layer_norm"}

ENOUGH = 600
"""Operations from which the costs of a network follow."""


def sweep(results: Path) -> Sweep:
    return Sweep.chosen([results], BOARD, SPECS, None, QUICK, limit_s=8.0)


def interrupt(event: ProgressEvent) -> None:
    if "round-00" in event.activity and "measuring block 2" in event.activity:
        raise KeyboardInterrupt


def test_an_interrupted_sweep_goes_on_and_predicts_a_network(tmp_path: Path) -> None:
    begun = sweep(tmp_path)
    first = profile_device(BOARD, SPECS, None, QUICK, begun.networks)
    with pytest.raises(KeyboardInterrupt):
        begun.measure(first, interrupt)
    trials = sorted(begun.directory.glob("round-00/block-00*.jsonl"))
    written = [file.stat().st_mtime_ns for file in trials]
    assert written

    resumed = sweep(tmp_path)
    assert resumed == begun
    profile = resumed.measure(first, lambda _event: None)
    assert [file.stat().st_mtime_ns for file in trials] == written
    assert profile.general is not None
    while profile.general.operations < ENOUGH:  # a busy computer measures fewer in the same time
        resumed = replace(resumed, limit_s=2.0 * resumed.limit_s)
        profile = resumed.measure(first, lambda _event: None)
        assert profile.general is not None
    assert profile.general.rounds >= 1
    assert profile.general.operations == len(profile.operations) - 1
    assert {spec.kind for spec in profile.by_spec} == set(SIGNATURES)
    # Of what most networks consist of, more is known than of other sorts.
    counts = Counter(map(sort, profile.by_spec))
    common = [counts[name] for name in counts if name.partition(".")[0] in COMMON]
    others = [counts[name] for name in counts if name.partition(".")[0] not in COMMON]
    assert statistics.mean(common) > statistics.mean(others)
    resumed.finish(profile)
    assert sweep(tmp_path) != begun

    _require_right_costs(profile, tmp_path)


def _require_right_costs(general: DeviceProfile, results: Path) -> None:
    """Hold the predictions of a network against what the board takes."""
    step = build_model("digits", batch=4)
    found = cost_graph(step, general)
    assert len(found.predicted) >= 0.9 * len(step.costed_specs)
    directory = results / "network"
    directory.mkdir()
    truth = profile_device(BOARD, step.costed_specs, None, QUICK, directory)
    errors, held = [], []
    for prediction in found.predicted:
        measured_s = truth.by_spec[prediction.spec].warm.time_s.median
        errors.append(abs(prediction.time_s.median / measured_s - 1))
        held.append(prediction.time_s.low <= measured_s <= prediction.time_s.high)
    assert statistics.median(errors) < 0.2
    assert statistics.mean(held) > 0.8
    total_s = sum(truth.by_spec[op.spec.costed_as].warm.time_s.median for op in step.ops)
    assert found.step_time_s.median == pytest.approx(total_s, rel=0.5)

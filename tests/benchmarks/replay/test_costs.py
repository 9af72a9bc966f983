"""The benchmark of costs: records of few or older runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.replay import costs
from benchmarks.replay.costs import Record, costs_page
from devices.documents.document import dump_yaml, write_atomically
from devices.profile import Interval
from devices.replay import Comparison
from networks.models import build_model
from profiler.run.table import TrialTable
from replay.directory import StoredRun
from tests.support.graphs.profiles import made_up_profile

PROFILE = made_up_profile(list(build_model("digits", 1).costed_specs))


def test_a_single_recomputation_has_no_quartiles(monkeypatch: pytest.MonkeyPatch) -> None:
    interval = Interval(median=1.0, low=0.9, high=1.1)
    taken = Comparison.of(interval, interval.scaled(2.0))
    actions = [SimpleNamespace(what=what, label="op") for what in ("compute", "recompute")]
    report = SimpleNamespace(actions=actions, time_s=taken)
    runs = (cast(StoredRun, SimpleNamespace(report=report)),)
    record = Record(PROFILE, TrialTable.of([]), runs)
    monkeypatch.setattr(costs, "_predicted", lambda *_: costs._Result((taken, taken), (taken,)))
    monkeypatch.setattr(Record, "read", lambda _directory: record)
    *_, again = costs_page([Path()], []).tables
    assert [row[-1] for row in again.rows] == ["–", "1.00"]


def test_runs_from_before_the_profile_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = PROFILE.changed(created="2026-11-27T10:00:00+00:00")
    for path in ("profiles/local.yaml", "runs/one/profile.yaml"):
        write_atomically(tmp_path / path, dump_yaml(profile))
    made = {"before": "2026-11-27T09:59:59+00:00", "after": "2026-11-27T10:00:00+00:00"}
    for name in made:
        write_atomically(tmp_path / "replays" / name / "replay.json", "")

    def read(path: Path) -> StoredRun:
        report = SimpleNamespace(created=made[path.parent.name])
        return cast(StoredRun, SimpleNamespace(directory=path.parent, report=report))

    monkeypatch.setattr(StoredRun, "read", read)
    monkeypatch.setattr(costs.RunDirectory, "harness_runs", lambda _run: [])
    assert [run.directory.name for run in Record.read(tmp_path).runs] == ["after"]
    del made["after"]
    (tmp_path / "replays" / "after" / "replay.json").unlink()
    with pytest.raises(ValueError, match="no run is later than the profile"):
        Record.read(tmp_path)

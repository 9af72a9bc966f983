"""The benchmark of curves: points of several slices, resumed from its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.curves import points
from benchmarks.curves.cases import Case
from benchmarks.curves.picture import draw
from benchmarks.curves.points import curve
from devices.published import load_published
from devices.quantities import Slices
from solver.options import SolverOptions


@pytest.mark.slow
def test_a_curve_has_the_best_slices_of_each_budget_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "release", lambda: "one")
    slices = Slices(512, 512)
    case = Case("digits", "digits", (None, slices), load_published("m4"))
    # Any schedule will do: each search ends with its first one.
    options = SolverOptions(threads=1, time_limit_s=60.0, gap=0.9)
    found = curve(case, 2, options, tmp_path / "record")
    tight, roomy = found.points
    assert tight.best is not None
    assert tight.best[0].slices == slices
    assert roomy.best is not None
    assert roomy.best[0].slices is None
    assert roomy.bound_j <= found.kept_j <= (roomy.best[1].energy_j or 0.0)
    assert roomy.bound_j <= tight.bound_j <= (tight.best[1].energy_j or 0.0)
    for point in found.points:
        assert point.best is not None
        assert (point.best[1].arena_bytes or 0) <= point.budget.ram_bytes
    monkeypatch.setattr(points, "release", lambda: "two")
    again = curve(case, 2, options, tmp_path / "record")
    assert again.points == found.points
    assert again.releases == {"one"}
    draw([found], tmp_path / "curves.svg")
    assert "digits" in (tmp_path / "curves.svg").read_text()


@pytest.mark.slow
def test_points_of_another_time_limit_are_solved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("digits", "digits", (None,), load_published("m4"))
    calls = (("one", 2.0, "one"), ("two", 1.0, "two"), ("three", 1.0, "two"), ("four", 2.0, "one"))
    for now, limit_s, solved_by in calls:
        monkeypatch.setattr(points, "release", lambda now=now: now)
        options = SolverOptions(threads=1, time_limit_s=limit_s, gap=0.05)
        assert curve(case, 1, options, tmp_path).releases == {solved_by}

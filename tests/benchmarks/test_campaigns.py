"""The benchmark of false alarms and power: simulated comparisons, and trials that are missing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.campaigns import __main__ as campaigns
from benchmarks.campaigns.power import simulate


@pytest.mark.parametrize("margin", [0.0, 0.02])
def test_equal_things_rarely_raise_an_alarm_and_a_large_change_is_found(margin: float) -> None:
    draw = random.Random(1)
    scatter = [draw.gauss(0.0, 0.05) for _ in range(200)]
    equal = simulate(scatter, 0.0, 8, 1000, margin)
    assert (equal.more + equal.less) / equal.comparisons <= 0.07
    slower = simulate(scatter, 0.10, 8, 1000, margin)
    assert slower.more / slower.comparisons >= 0.9
    assert slower.less == 0
    assert simulate(scatter, -0.10, 8, 1000, margin).more == 0


def test_without_scatter_every_change_beyond_the_margin_is_found() -> None:
    for change, more in ((0.0, 0), (0.01, 0), (0.03, 100)):
        assert simulate([0.0] * 8, change, 8, 100, 0.02).more == more


def test_a_page_names_the_boards_without_trials() -> None:
    assert [text.strip()[:41] for text in campaigns.missing({"local": 39}, 40)] == [
        "**39 of 40 trials on local were made** be",
        "**0 of 10 trials on emulated-m4f were mad",
    ]
    assert list(campaigns.missing({"local": 40, "emulated-m4f": 10}, 40)) == []


def test_no_page_is_made_of_no_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "campaigns.md"
    words = ["campaigns", "--minutes", "0", "--record", str(tmp_path), "--write", str(page)]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit, match="no trial is kept here"):
        campaigns.main()
    assert not page.exists()

"""The benchmark of what noise forbids: two profiles of one network."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest

from benchmarks.replay.floor import floor_page
from devices.documents.document import dump_yaml, write_atomically
from devices.profile import Interval, PlaceCost, ProfiledNetwork, Sitting, StepCosts
from networks.models import step_of
from tests.support.graphs.profiles import made_up_profile

NETWORK = ProfiledNetwork(model="digits", batch=1, optimizer="sgd")


def profile_file(path: Path, created: str, sittings_s: tuple[float, ...]) -> Path:
    """A profile in which each op takes these seconds, and its interval spans them."""
    step = step_of(NETWORK)
    middle_s = statistics.median(sittings_s)
    spanned = Interval(median=middle_s, low=min(sittings_s), high=max(sittings_s))
    sitting = Sitting(schedule="unscheduled", steps=10, measured=created)
    costs = StepCosts(
        network=NETWORK,
        sittings=(sitting,) * len(sittings_s),
        correlation=1.0,
        places=tuple(
            PlaceCost(
                op=op.name,
                key=op.spec.key,
                time_s=spanned,
                energy_j=spanned,
                sittings_s=sittings_s,
            )
            for op in step.ops
        ),
    )
    profile = made_up_profile(list(step.costed_specs))
    write_atomically(path, dump_yaml(profile.changed(created=created, step_costs=(costs,))))
    return path


def test_a_later_profile_is_held_against_the_first(tmp_path: Path) -> None:
    first = profile_file(tmp_path / "first.yaml", "2026-11-27T10:00:00+00:00", (1.8, 2.0, 2.2))
    later = profile_file(tmp_path / "later.yaml", "2026-11-27T10:30:00+00:00", (2.0, 2.1, 3.0))
    [table] = floor_page([first], [later], []).tables
    network, together = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    assert network["network"] == "digits, batch 1"
    assert network["apart"] == "30"
    assert network["profiles differ"] == "+5.0 %"
    assert network["sittings differ"] == "5.0 %; 50.0 %"
    assert network["steps held"] == "2 of 3"
    assert network["two sittings"] == f"{100 * (3.0 / 1.8 - 1):.1f} %"
    assert network["least half width"] == f"±{100 * math.sinh(math.log(3.0 / 1.8) / 2**0.5):.1f} %"
    assert network["half width"] == "±10.0 %"
    assert network["actions held"] == "66.7 %"
    assert network["of their time"] == f"{100 * 4.1 / 7.1:.1f} %"
    for name in table.head[3:]:
        assert together[name] == network[name]


def test_short_actions_have_no_widths(tmp_path: Path) -> None:
    made = "2026-11-27T10:00:00+00:00"
    file = profile_file(tmp_path / "board.yaml", made, (1e-6, 1e-6))
    [table] = floor_page([file], [file], []).tables
    assert [row[5:8] for row in table.rows] == [("–", "–", "–")] * 2


def test_a_network_needs_a_later_profile(tmp_path: Path) -> None:
    file = profile_file(tmp_path / "board.yaml", "2026-11-27T10:00:00+00:00", (1.0,))
    with pytest.raises(ValueError, match="no later profile"):
        floor_page([file], [], [])

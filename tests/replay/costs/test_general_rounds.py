"""Which shapes the rounds of a general profile measure, and which notes it keeps.

No board is measured: costs are made up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from devices.description import load_description
from devices.operation import OpSpec
from devices.profile import DeviceProfile
from profiler.run.options import ProfileOptions
from replay.costs.general import Sweep
from solver.costing.terms import sort
from tests.support.graphs.profiles import made_up_profile

RELU = OpSpec.of("relu.forward", elements=432)
COMMON = {"conv2d", "linear", "batch_norm", "relu", "add", "gradient", "sgd"}
NO_CACHE = "The board has no data cache: warm and cold costs are one measurement."


def made_up(specs: Sequence[OpSpec]) -> DeviceProfile:
    return made_up_profile(list(specs)).changed(notes=("3 void trials: preempted.", NO_CACHE))


@pytest.fixture(autouse=True)
def measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round takes 8 s."""
    monkeypatch.setattr("replay.costs.general.profile_device", lambda _, specs, *__: made_up(specs))
    monkeypatch.setattr("replay.costs.general._measured_s", lambda _: 8.0)


@pytest.mark.slow
def test_every_sort_that_most_networks_consist_of_is_measured_ten_times(tmp_path: Path) -> None:
    """Also those of which the model is sure, since all made-up costs follow one law."""
    board = load_description("local")
    sweep = Sweep.chosen([tmp_path], board, (RELU,), None, ProfileOptions(), limit_s=48.0)
    profile = sweep.measure(made_up_profile([RELU]), lambda _event: None)
    assert profile.general is not None
    assert profile.general.rounds > 3
    counts = Counter(map(sort, profile.by_spec))
    common = [counts[name] for name in counts if name.partition(".")[0] in COMMON]
    assert min(common) > 9


def test_notes_of_the_rounds_are_kept_beside_those_of_the_networks(tmp_path: Path) -> None:
    board = load_description("emulated-m4f")
    sweep = Sweep.chosen([tmp_path], board, (RELU,), None, ProfileOptions(), limit_s=8.0)
    first = made_up_profile([RELU]).changed(notes=("Intervals cover 5 blocks.", NO_CACHE))
    profile = sweep.measure(first, lambda _event: None)
    assert len(profile.operations) > len(first.operations)
    assert profile.notes == (*first.notes, "Shapes of round-00: 3 void trials: preempted.")


@pytest.mark.slow
def test_a_sweep_says_after_each_round_how_much_of_its_time_is_over(tmp_path: Path) -> None:
    board = load_description("local")
    sweep = Sweep.chosen([tmp_path], board, (RELU,), None, ProfileOptions(), limit_s=48.0)
    shares: list[float] = []
    profile = sweep.measure(made_up_profile([RELU]), lambda _event: None, shares.append)
    assert profile.general is not None
    assert profile.general.rounds > 3
    # Rounds of 8 s; what is left of the time after the last may be less than half of one.
    assert shares == pytest.approx([8.0 * n / 48.0 for n in range(1, len(shares) + 1)])
    assert len(shares) in {profile.general.rounds - 1, profile.general.rounds}

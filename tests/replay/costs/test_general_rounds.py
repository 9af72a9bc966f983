"""What a general profile keeps of its rounds; measurements are made up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from devices.description import load_description
from devices.operation import OpSpec
from devices.profile import DeviceProfile
from profiler.run.options import ProfileOptions
from replay.costs.general import Sweep
from tests.support.graphs.profiles import made_up_profile

RELU = OpSpec.of("relu.forward", elements=432)
NO_CACHE = "The board has no data cache: warm and cold costs are one measurement."


def test_notes_of_the_rounds_are_kept_beside_those_of_the_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(_: Any, specs: Sequence[OpSpec], *__: Any) -> DeviceProfile:
        return made_up_profile(list(specs)).changed(notes=("3 void trials: preempted.", NO_CACHE))

    monkeypatch.setattr("replay.costs.general.profile_device", measured)
    monkeypatch.setattr("replay.costs.general._measured_s", lambda _: 8.0)
    board = load_description("emulated-m4f")
    sweep = Sweep.chosen([tmp_path], board, (RELU,), None, ProfileOptions(), limit_s=8.0)
    first = made_up_profile([RELU]).changed(notes=("Intervals cover 5 blocks.", NO_CACHE))
    profile = sweep.measure(first, lambda _event: None)
    assert len(profile.operations) > len(first.operations)
    assert profile.notes == (*first.notes, "Shapes of round-00: 3 void trials: preempted.")

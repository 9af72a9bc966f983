"""Which shapes the rounds of a general profile measure, and which notes it keeps.

No board is measured: costs are made up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from devices.description import DeviceDescription, load_description
from devices.errors import RequestRefused
from devices.operation import OpSpec
from devices.profile import Build, DeviceProfile
from profiler.run.options import ProfileOptions
from profiler.run.trials import RunDirectory
from replay.costs.general import Sweep
from solver.costing.terms import sort
from tests.support.graphs.profiles import made_up_profile

RELU = OpSpec.of("relu.forward", elements=432)
COMMON = {"conv2d", "linear", "batch_norm", "relu", "add", "gradient", "sgd"}
NO_CACHE = "The board has no data cache: warm and cold costs are one measurement."
BLAS = Build(kernels_sha256="b", compiler="cc", flags=(), matmul="cblas", threads=1)
IN_TREE = BLAS.model_copy(update={"kernels_sha256": "i", "matmul": "in-tree"})


def made_up(specs: Sequence[OpSpec]) -> DeviceProfile:
    notes = ("3 void trials: preempted.", NO_CACHE)
    return made_up_profile(list(specs)).changed(build=BLAS, notes=notes)


@pytest.fixture(autouse=True)
def measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round takes 8 s."""
    monkeypatch.setattr(
        "replay.costs.general.profile_device", lambda _, specs, *__, **___: made_up(specs)
    )
    monkeypatch.setattr("replay.costs.general._measured_s", lambda _: 8.0)


@pytest.mark.slow
def test_every_sort_that_most_networks_consist_of_is_measured_ten_times(tmp_path: Path) -> None:
    """Also those of which the model is sure, since all made-up costs follow one law."""
    board = load_description("local")
    sweep = Sweep.chosen([tmp_path], board, (RELU,), None, ProfileOptions(), limit_s=48.0)
    profile = sweep.measure(made_up([RELU]), lambda _event: None)
    assert profile.general is not None
    assert profile.general.rounds > 3
    counts = Counter(map(sort, profile.by_spec))
    common = [counts[name] for name in counts if name.partition(".")[0] in COMMON]
    assert min(common) > 9


def test_notes_of_the_rounds_are_kept_beside_those_of_the_networks(tmp_path: Path) -> None:
    board = load_description("emulated-m4f")
    sweep = Sweep.chosen([tmp_path], board, (RELU,), None, ProfileOptions(), limit_s=8.0)
    first = made_up([RELU]).changed(notes=("Intervals cover 5 blocks.", NO_CACHE))
    profile = sweep.measure(first, lambda _event: None)
    assert len(profile.operations) > len(first.operations)
    assert profile.notes == (*first.notes, "Shapes of round-00: 3 void trials: preempted.")


@pytest.mark.slow
def test_a_sweep_says_after_each_round_how_much_of_its_time_is_over(tmp_path: Path) -> None:
    board = load_description("local")
    sweep = Sweep.chosen([tmp_path], board, (RELU,), None, ProfileOptions(), limit_s=48.0)
    shares: list[float] = []
    profile = sweep.measure(made_up([RELU]), lambda _event: None, shares.append)
    assert profile.general is not None
    assert profile.general.rounds > 3
    # Rounds of 8 s; what is left of the time after the last may be less than half of one.
    assert shares == pytest.approx([8.0 * n / 48.0 for n in range(1, len(shares) + 1)])
    assert len(shares) in {profile.general.rounds - 1, profile.general.rounds}


def test_all_rounds_are_measured_with_the_kernels_of_the_first_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board would compare the matrix products again, and might choose others."""

    def measure(
        board: DeviceDescription, specs: Sequence[OpSpec], *_: Any, require_board: Any
    ) -> DeviceProfile:
        assert board.toolchain.kind == "native"
        build = {"cblas": BLAS, "auto": IN_TREE}[board.toolchain.matmul]
        found = made_up(specs).changed(build=build)
        require_board(found.board, build, found.energy_source)
        return found

    monkeypatch.setattr("replay.costs.general.profile_device", measure)
    board = load_description("local")
    sweep = Sweep.chosen([tmp_path], board, (RELU,), None, ProfileOptions(), limit_s=8.0)
    profile = sweep.measure(made_up([RELU]), lambda _event: None)
    assert profile.build == BLAS
    assert len(profile.operations) > 1


@pytest.mark.parametrize("finished", [True, False])
def test_a_round_of_other_kernels_or_another_board_is_refused(
    finished: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade: what was measured before it is of other kernels."""
    board = load_description("local")
    sweep = Sweep.chosen([tmp_path], board, (RELU,), None, ProfileOptions(), limit_s=8.0)
    own = made_up([RELU])
    other = own.board.model_copy(update={"cpu": "another"})
    for found, words in (
        (own.changed(build=IN_TREE), "is of kernels b, the board's are i now"),
        (own.changed(board=other), "this board's is 'another'"),
    ):
        if finished:
            directory = sweep.directory / "round-00"
            directory.mkdir(exist_ok=True)
            RunDirectory(directory).finish(found)
        else:
            monkeypatch.setattr(
                "replay.costs.general.profile_device",
                lambda *_, require_board, found=found: require_board(
                    found.board, found.build, found.energy_source
                ),
            )
        with pytest.raises(RequestRefused, match=words) as refusal:
            sweep.measure(own, lambda _event: None)
        assert f"remove {sweep.directory} and profile the board again" in str(refusal.value)

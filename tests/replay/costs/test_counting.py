"""Zeros are counted beside watched steps, and their count is no reason to lose these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from devices import description
from devices.description import DeviceDescription, load_description
from devices.documents.document import read_yaml
from devices.errors import BuildFailed
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from devices.profile import DeviceProfile, StepCosts
from replay.costs.watch import watch_step
from replay.running import opening
from tests.commands.test_slices import command

pytestmark = pytest.mark.slow

MODEL = ("--model", "digits", "--batch", "2", "--blocks", "1", "--storage-budget-mib", "64")

Plans = Callable[[Mapping[OpSpec, int]], Sequence[ExecutionPlan]]


@pytest.fixture(scope="module")
def profiled(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[DeviceDescription, DeviceProfile]:
    """This computer as a board that packs, and its profile without watched steps."""
    directory = tmp_path_factory.mktemp("counting")
    local = (description.CATALOG / "local.yaml").read_text()
    own = directory / "own.yaml"
    own.write_text(local.replace("dma: true", "dma: false").replace("name: local", "name: own"))
    assert command(directory, "profile", "--device", str(own), *MODEL, "--no-additivity") == 0
    file = directory / "results" / "profiles" / "own.yaml"
    return load_description(str(own)), read_yaml(file, DeviceProfile)


def watch(
    profiled: tuple[DeviceDescription, DeviceProfile], *, counts_zeros: bool = True
) -> tuple[StepCosts, list[str]]:
    """Watch the step; returns also what is said meanwhile."""
    board, profile = profiled
    (network,) = profile.networks
    said: list[str] = []
    costs = watch_step(
        board,
        network,
        profile,
        said.append,
        storage_budget_bytes=64 << 20,
        counts_zeros=counts_zeros,
    )
    return costs, said


def test_a_check_counts_no_zeros(profiled: tuple[DeviceDescription, DeviceProfile]) -> None:
    costs, said = watch(profiled, counts_zeros=False)
    assert costs.places
    assert not costs.packed
    assert not any("zeros" in line for line in said)


def test_a_program_that_cannot_count_costs_no_sitting(
    profiled: tuple[DeviceDescription, DeviceProfile],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A plan that counts is longer than one that is watched, and may not fit beside the kernels."""
    open_replay = opening.open_replay

    def too_small(
        board: DeviceDescription,
        specs: Sequence[OpSpec],
        make_plans: Plans,
        progress: Callable[[str], None],
        **others: str | None,
    ) -> AbstractContextManager[object]:
        def fitting(workspace_bytes: Mapping[OpSpec, int]) -> Sequence[ExecutionPlan]:
            plans = make_plans(workspace_bytes)
            if any(plan.counted_page_bytes for plan in plans):
                raise BuildFailed("the program does not fit into the flash")
            return plans

        return open_replay(
            board,
            specs,
            fitting,
            progress,
            kernels_sha256=others["kernels_sha256"],
            matmul=others["matmul"],
        )

    monkeypatch.setattr(opening, "open_replay", too_small)
    costs, said = watch(profiled)
    assert costs.places
    assert not costs.packed
    assert said[-1] == "zeros were not counted: the program does not fit into the flash"

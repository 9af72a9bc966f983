"""Schedules have the workspace that the kernels need, whatever the profile measured."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from devices.operation import SIGNATURES, OperationError, OpSpec
from devices.profile import DeviceProfile
from devices.published import load_published
from devices.quantities import Slices
from devices.signatures.ranges import draw_attributes
from devices.signatures.tiles import KernelBuild
from devices.signatures.workspaces import KERNEL_BUILDS
from networks.models import build_model
from replay.lowering.lowering import lower
from solver.costing.costing import cost_graph
from solver.costing.model import CostModel
from solver.options import SolverOptions
from solver.problem.footprint import least_ram_bytes
from solver.problem.schedule import Budget
from solver.solving.solving import solve_graph
from tests.support.graphs.profiles import made_up_profile

_SMALL_TILES = KernelBuild(4, is_small=True)
_SMALL_BLAS = KernelBuild(0, is_small=True)


def _measured(specs: Iterable[OpSpec], build: KernelBuild) -> DeviceProfile:
    profile = made_up_profile(list(specs))
    operations = [
        operation.model_copy(update={"workspace_bytes": spec.workspace_bytes(build)})
        for spec, operation in profile.by_spec.items()
    ]
    return profile.changed(operations=tuple(operations))


def _general_specs() -> Iterator[OpSpec]:
    chance = random.Random(5)
    for kind in SIGNATURES:
        for _ in range(3):
            try:
                yield OpSpec.of(kind, **draw_attributes(kind, chance))
            except OperationError:
                continue


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "slices"),
    [
        ("resnet8", Slices(16 << 10, 16 << 10)),
        ("mobilenet", Slices(16 << 10, 16 << 10)),
        ("resnet18_cifar", Slices(128 << 10)),
        ("transformer", Slices(16 << 10, 16 << 10)),
    ],
    ids=str,
)
def test_every_operation_in_slices_has_its_workspace(network: str, slices: Slices) -> None:
    """A profile of the whole network, a general one and published costs, for every build."""
    step = build_model(network, parameters_in="storage", slices=slices)
    small, large = (CostModel(load_published(name)) for name in ("m4", "a72"))
    for build in KERNEL_BUILDS:
        needed = {spec: spec.workspace_bytes(build) for spec in step.costed_specs}
        general = CostModel(_measured(dict.fromkeys(_general_specs()), build))
        of_network = CostModel(_measured(build_model(network).costed_specs, build))
        published = small if build.is_small else large
        for spec in needed:
            assert general.workspace_bytes(spec) == needed[spec]
            assert of_network.workspace_bytes(spec) == needed[spec]
            if build != _SMALL_BLAS:  # microcontrollers have no BLAS
                assert published.workspace_bytes(spec) >= needed[spec]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["BLAS", "general", "published"])
def test_what_is_solved_in_slices_is_lowered_with_the_kernels_own_workspace(kind: str) -> None:
    build = KernelBuild(0, is_small=False) if kind == "BLAS" else _SMALL_TILES
    profile = {
        "BLAS": lambda: _measured(build_model("resnet8").costed_specs, build),
        "general": lambda: _measured(dict.fromkeys(_general_specs()), build),
        "published": lambda: load_published("m4"),
    }[kind]()
    step = build_model("resnet8", parameters_in="storage", slices=Slices(32 << 10))
    graph = cost_graph(step, profile).graph
    least, _ = least_ram_bytes(graph)
    budget = Budget(ram_bytes=2 * least)
    schedule = solve_graph(graph, budget, SolverOptions(time_limit_s=60.0, gap=0.99, threads=1))
    kernels = {spec: spec.workspace_bytes(build) for spec in step.distinct_specs}
    assert lower(step, graph, schedule, kernels).arena_bytes <= budget.ram_bytes

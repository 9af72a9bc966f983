"""Workspaces as ``devices.signatures.workspaces`` states them, held against the kernels' own."""

from __future__ import annotations

import platform
import random
from collections.abc import Iterator

import pytest

from devices.operation import SIGNATURES, OperationError, OpSpec
from devices.signatures.ranges import draw_attributes
from devices.signatures.tiles import KernelBuild
from devices.signatures.workspaces import KERNEL_BUILDS
from tests.support.onboard.kernels import KernelLibrary, Matmul, compile_library

_DRAWS = 40
"""Operations of each kind; some thousands in all."""

# As if the processor had other vectors, or none: only workspace queries are called, which must run
# without those.
_BUILDS: dict[str, tuple[Matmul, tuple[str, ...], KernelBuild]] = {
    "no vectors": ("in-tree", ("-U__SSE2__",), KernelBuild(4, is_small=False)),
    "NEON": ("in-tree", ("-U__SSE2__", "-D__aarch64__"), KernelBuild(20, is_small=False)),
    "SSE2": ("in-tree", (), KernelBuild(24, is_small=False)),
    "AVX": ("in-tree", ("-D__AVX__",), KernelBuild(24, is_small=False)),
    "AVX-512": ("in-tree", ("-D__AVX__", "-D__AVX512F__"), KernelBuild(32, is_small=False)),
    "small": ("in-tree", ("-DJW_SMALL_MEMORY=1",), KernelBuild(4, is_small=True)),
    "BLAS": ("cblas", (), KernelBuild(0, is_small=False)),
    "small, BLAS": ("cblas", ("-DJW_SMALL_MEMORY=1",), KernelBuild(0, is_small=True)),
}


def _drawn(seed: int) -> Iterator[OpSpec]:
    chance = random.Random(seed)
    for kind in SIGNATURES:
        for _ in range(_DRAWS):
            try:
                yield OpSpec.of(kind, **draw_attributes(kind, chance))
            except OperationError:  # such as a window that is larger than its image
                continue


def _differing(library: KernelLibrary, build: KernelBuild) -> list[tuple[str, int, int]]:
    found = [
        (spec.key, spec.workspace_bytes(build), library.workspace_bytes(spec))
        for seed in (1, 2)
        for spec in _drawn(seed)
    ]
    assert len(found) > 5000
    return [each for each in found if each[1] != each[2]]


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the builds are those of x86-64")
@pytest.mark.parametrize("name", _BUILDS)
def test_stated_workspaces_are_those_of_the_kernels(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    matmul, flags, build = _BUILDS[name]
    directory = tmp_path_factory.mktemp("kernels")
    library = KernelLibrary(compile_library(directory, matmul, ("-O0", *flags)))
    assert _differing(library, build) == []


def test_every_build_is_compared() -> None:
    assert {build for _, _, build in _BUILDS.values()} == {*KERNEL_BUILDS}


@pytest.mark.slow
@pytest.mark.parametrize("build", KERNEL_BUILDS, ids=str)
def test_operations_of_one_cost_have_one_workspace(build: KernelBuild) -> None:
    for spec in _drawn(3):
        assert spec.workspace_bytes(build) == spec.costed_as.workspace_bytes(build), spec.key

"""Builds of the kernels that a profile can be of, which state the workspace of every operation.

A profile has the workspaces of the operations that were measured. They tell apart the builds of the
kernels, which then state the workspaces of all others. Published rates name the sort of tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from devices.profile import DeviceProfile
from devices.signatures.tiles import KernelBuild
from devices.signatures.workspaces import KERNEL_BUILDS


def kernel_builds(profile: DeviceProfile) -> Sequence[KernelBuild]:
    """Builds of the kernels that a profile can be of.

    They are those in which all measured operations have the workspaces that were measured. If there
    are none, because the kernels have changed since, they are all with products of the same sort.
    There are none for rates that do not say which kernels they are of.
    """
    build, rates = profile.build, profile.rates
    if not profile.operations and rates is not None and rates.tiles is None:
        return []
    builds = [
        each
        for each in KERNEL_BUILDS
        if build is None or each.has_blas == (build.matmul == "cblas")
    ]
    if rates is not None and rates.tiles is not None:
        is_small = rates.tiles == "small"
        builds = [each for each in builds if each.is_small == is_small]
        if is_small:  # of microcontrollers, which have no BLAS
            builds = [each for each in builds if not each.has_blas]
    return [each for each in builds if _agrees(profile, each)] or builds


def _agrees(profile: DeviceProfile, build: KernelBuild) -> bool:
    return all(
        spec.workspace_bytes(build) == operation.workspace_bytes
        for spec, operation in profile.by_spec.items()
    )

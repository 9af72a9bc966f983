"""Twin of a microcontroller on this computer: kernels with the same bits and the same workspace.

One plan runs on both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devices.claims.scratch import ScratchDirectory
from devices.description import DeviceDescription, NativeToolchain, load_description
from profiler.building.firmware_image import compiler_macros

_FUSED = "__FP_FAST_FMAF"
"""Macro that GCC defines where one instruction multiplies and adds with a single rounding."""

_STORE = "twin."
"""Prefix of the directories that twins page to."""


def host_twin(description: DeviceDescription) -> DeviceDescription:
    """Describe this computer so that its kernels compute the values of a microcontroller.

    Only values are comparable: times and energies are this computer's.

    Kernels round alike everywhere (``-ffp-contract=off``), except for two choices made at compile
    time. The first is whether products are fused with sums (``JW_FMA``): as the board's compiler
    does. ``fmaf`` is correctly rounded also on a computer without the instruction, but slow. The
    second is the size of tiles, which determines the order of sums and the size of workspaces: as
    for a small memory. Matrix products are computed by the kernels, not by a BLAS.

    Args:
        description: the microcontroller.

    Raises:
        BuildFailed: the board's compiler is not installed.
    """
    fused = _FUSED in compiler_macros(description)
    rounding = f"-D{_FUSED}=1" if fused else f"-U{_FUSED}"
    here = load_description("local")
    toolchain = NativeToolchain(
        kind="native",
        flags=("-O2", "-march=native", rounding, "-DJW_SMALL_MEMORY=1"),
        matmul="in-tree",
    )
    return here.model_copy(update={"name": f"{description.name}-twin", "toolchain": toolchain})


@contextmanager
def paging_twin(description: DeviceDescription) -> Iterator[DeviceDescription]:
    """The host twin, with a directory of its own to page to, which is removed in the end.

    Microcontrollers that are run at the same time have twins that page at the same time. The
    directory is on the same disk as this computer's storage.

    Args:
        description: the microcontroller.

    Raises:
        BuildFailed: the board's compiler is not installed.
        OSError: the directory cannot be made.
    """
    twin = host_twin(description)
    assert twin.storage is not None
    assert twin.storage.path is not None, "this computer pages to files"
    with ScratchDirectory(Path(twin.storage.path).expanduser(), _STORE) as directory:
        storage = twin.storage.model_copy(update={"path": str(directory.path)})
        yield twin.model_copy(update={"storage": storage})

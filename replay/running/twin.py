"""This computer in a microcontroller's stead: kernels that compute the same bits, and the RAM that
they need for themselves of the same size, so that one plan runs on both."""

from __future__ import annotations

from devices.description import DeviceDescription, NativeToolchain, load_description
from profiler.building.firmware_image import compiler_macros

_FUSED = "__FP_FAST_FMAF"
"""GCC defines it where a product and a sum are rounded once, by one instruction."""


def host_twin(description: DeviceDescription) -> DeviceDescription:
    """A description of this computer for a replay whose values are to be held against those of a
    microcontroller. Only values: its times and joules are this computer's.

    Kernels round alike everywhere (``-ffp-contract=off``), but for two choices that they make at
    compile time. One is whether products are fused with sums (``JW_FMA``): as the board's own
    compiler has it. ``fmaf`` is correctly rounded also on a computer without the instruction, only
    slow. The other is into which tiles work is cut, which decides the order of sums and the size of
    workspaces: as for a small memory. Matrix products are the kernels' own.

    Raises :class:`~devices.errors.BuildFailed` where the board's compiler is not there.
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

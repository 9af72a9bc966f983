"""Two clocks for the pieces of an operation: this computer's, and an emulated board's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.slices.calls import Caller
from benchmarks.slices.layers import Layer, Piece
from benchmarks.slices.operands import Operands
from devices.description import DeviceDescription, load_description
from devices.operation import OpSpec
from profiler.run.options import ProfileOptions
from profiler.run.run import profile_device
from tests.support.onboard.kernels import KernelLibrary

BOARD = "emulated-m4f"

# The board's external RAM, which the emulator makes as fast as the other: whole layers need more
# than its 4 MiB.
_RAM_ADDRESS, _RAM_BYTES = 0x21000000, 16 << 20


class Clock(Protocol):
    """Times of contestants, each of which is some pieces, one after the other."""

    def times(
        self, layer: Layer, contestants: Sequence[Sequence[Piece]]
    ) -> tuple[float, list[float]]:
        """Seconds of the first contestant, and the ratios of the others to it."""
        ...


class ThisComputer:
    """Processor time of a build of the kernels; medians over rounds in which all take turns."""

    def __init__(self, library: KernelLibrary, caller: Caller, rounds: int) -> None:
        self._library, self._caller, self._rounds = library, caller, rounds

    def times(
        self, layer: Layer, contestants: Sequence[Sequence[Piece]]
    ) -> tuple[float, list[float]]:
        operands = Operands(self._library, layer)
        calls = [operands.calls(pieces) for pieces in contestants]
        whole_s, *others_s = self._caller.seconds(calls, self._rounds)
        return float(np.median(whole_s)), [
            float(np.median(np.divide(each, whole_s))) for each in others_s
        ]


class EmulatedBoard:
    """Time of a Cortex-M4F whose instructions all take equally long.

    ``directory`` keeps the trials. Pieces of one shape are measured once.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._profiles = directory, 0
        self._description = _with_external_ram(load_description(BOARD))

    def times(
        self,
        layer: Layer,
        contestants: Sequence[Sequence[Piece]],
    ) -> tuple[float, list[float]]:
        specs = list(dict.fromkeys(piece.spec for pieces in contestants for piece in pieces))
        taken_s = self.seconds(specs, layer.name)
        whole_s, *others_s = (
            sum(taken_s[piece.spec] for piece in pieces) for pieces in contestants
        )
        return whole_s, [each / whole_s for each in others_s]

    def seconds(self, specs: Sequence[OpSpec], name: str) -> dict[OpSpec, float]:
        """Time of each operation. The trials are kept under ``name``."""
        self._profiles += 1
        options = ProfileOptions(blocks=1, min_window_s=1e-3, idle_s=1e-2, storage=False)
        directory = self._directory / f"{self._profiles} {name}"
        profile = profile_device(self._description, specs, None, options, directory)
        return {spec: profile.by_spec[spec].warm.time_s.median for spec in specs}


def _with_external_ram(description: DeviceDescription) -> DeviceDescription:
    assert description.firmware is not None
    assert description.memory is not None
    firmware = description.firmware.model_copy(update={"ram_address": _RAM_ADDRESS})
    memory = description.memory.model_copy(update={"ram_bytes": _RAM_BYTES})
    return description.model_copy(update={"firmware": firmware, "memory": memory})

"""Processor time of kernel calls, without Python between them."""

from __future__ import annotations

import ctypes
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.onboard.kernels import KERNELS, PreparedCall

_SAMPLE_S = 5e-3


class Caller:
    """A compiled loop over calls; ``directory`` holds it."""

    def __init__(self, directory: Path) -> None:
        library = directory / "calls.so"
        source = Path(__file__).with_name("calls.c")
        subprocess.run(
            ["cc", "-O2", "-fPIC", "-shared", "-o", library, f"-I{KERNELS}", source], check=True
        )
        self._run_calls = ctypes.CDLL(str(library)).run_calls

    def seconds(
        self, contestants: Sequence[Sequence[PreparedCall]], rounds: int
    ) -> list[list[float]]:
        """Processor time of one run of each contestant's calls, round by round.

        In a round, all take turns in the same order; each is repeated for at least 5 ms.
        """
        loops = [_Loop(self._run_calls, calls) for calls in contestants]
        repetitions = [repetitions_for(loop.run_s) for loop in loops]
        taken = [
            [loop.run_s(count) for loop, count in zip(loops, repetitions, strict=True)]
            for _ in range(rounds)
        ]
        return [list(each) for each in zip(*taken, strict=True)]


def repetitions_for(run_s: Callable[[int], float]) -> int:
    """Number of repetitions that take at least 5 ms, whatever the first run takes.

    ``run_s`` runs so many and returns the seconds of one.
    """
    run_s(1)
    repetitions = 1
    while repetitions * run_s(repetitions) < _SAMPLE_S:
        repetitions *= 2
    return repetitions


class _Loop:
    def __init__(self, run_calls: ctypes._FuncPointer, calls: Sequence[PreparedCall]) -> None:
        self._run_calls, self._calls, count = run_calls, calls, len(calls)
        self._kernels = (ctypes.c_void_p * count)(
            *(ctypes.cast(call.function, ctypes.c_void_p).value for call in calls)
        )
        self._operands = (ctypes.c_void_p * count)(*(ctypes.addressof(call.call) for call in calls))

    def run_s(self, repetitions: int) -> float:
        start = time.process_time()
        self._run_calls(
            ctypes.c_size_t(len(self._calls)),
            self._kernels,
            self._operands,
            ctypes.c_size_t(repetitions),
        )
        return (time.process_time() - start) / repetitions

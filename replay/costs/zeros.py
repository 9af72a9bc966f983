"""Count the sizes that a step's tensors would have if they were packed, on its board.

Each run has data and initial values of its own, as a sitting has. The counts are taken in a plan of
their own, so that the caches of watched steps are not disturbed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from devices.operation import ELEMENT_BYTES
from devices.plan import ExecutionPlan, Probe
from devices.profile import PackedTensor
from devices.replay import MeasuredStep
from profiler.statistics import later_intervals

RUNS, STEPS_A_RUN = 3, 3
"""Runs that count zeros, and steps of each."""


def packed_tensors(
    plan: ExecutionPlan, runs: Sequence[Sequence[MeasuredStep]]
) -> Iterator[PackedTensor]:
    """Packed sizes of the counted tensors that were shorter than whole in every run.

    Args:
        plan: A plan that counts (:func:`replay.lowering.zeros.counting`).
        runs: Watched steps of each run, at least one.
    """
    left: dict[Probe, list[float]] = {}
    for number, probe in enumerate(plan.probes):
        if probe.what == "zeros":
            counts = ([step.checksums[number] for step in steps] for steps in runs)
            sizes = [ELEMENT_BYTES * statistics.fmean(each) for each in counts]
            if max(sizes) < probe.block.bytes:
                left[probe] = sizes
    for (probe, sizes), later in zip(
        left.items(), later_intervals(list(left.values())), strict=True
    ):
        most = probe.block.bytes
        within = later.model_copy(update={"high": min(later.high, most)})
        yield PackedTensor(
            tensor=probe.tensor, bytes=most, packed_bytes=within, runs_bytes=tuple(sizes)
        )

"""Costs of transfers within a training step, from sittings of watched steps.

A transfer also moves and checks its bytes. In a step, these are in other caches than in a loop of
the transfer alone, which counts for each page, while most of a small write is a fixed latency. A
transfer of n pages that takes a + b·n by itself takes f·(a + (1 + g)·b·n) in a step: g ≥ 0 is what
the caches add, and f all else that the step changes. Both are fitted to the relative residuals of
all watched transfers, with a weak pull of g towards 0 (:data:`_PULL`): without it, transfers of
nearly one size would give any g.

Many transfers of a step take as long as usual, and a few much longer. A step therefore takes longer
than the medians of its transfers together. What counts is their mean over the middle half of the
steps by time, which adds up to the time of a usual step.

Beside ops, a transfer needs the processor for its system calls, copies and checks, and delays the
ops by so much. The board counts this processor time of transfers that run alone; its share of their
time is :func:`processor_share`. Handing a transfer over to another thread takes the processor
besides, which the board measures by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from devices.plan import Compute, ExecutionPlan, PageIn, PageOut
from devices.profile import AffinePageCost, Interval, Sitting, StorageCosts
from devices.replay import MeasuredStep, Span
from profiler.statistics import later_intervals
from replay.reporting.timing import is_asynchronous

_PULL = 0.3
"""Weight of g = 0 relative to that of one transfer: the ratio of a transfer's usual relative
deviation, about 0.3, to the g that is usual, about 1."""


def middle_steps(plan: ExecutionPlan, steps: Sequence[MeasuredStep]) -> Sequence[MeasuredStep]:
    """The middle half of the watched steps, by the time of their ops and transfers.

    Up to three steps are all in it.
    """
    working = [
        index
        for index, action in enumerate(plan.actions)
        if isinstance(action.does, Compute | PageIn | PageOut)
    ]
    by_time = sorted(
        steps, key=lambda step: math.fsum(step.spans[index].time_s for index in working)
    )
    aside = len(by_time) // 4
    return by_time[aside : len(by_time) - aside]


def without_transfers_beside(
    plan: ExecutionPlan, step: MeasuredStep, working_s: Callable[[float], float]
) -> MeasuredStep:
    """The watched step with spans as if no transfer had run beside an action.

    A transfer beside an op interrupts it, on the same processor, for a share of the time that both
    take together. ``working_s`` returns for how many of its seconds a transfer needs the processor.
    Schedules count this time with the transfers.
    """
    beside = [
        span
        for action, span in zip(plan.actions, step.spans, strict=False)
        if is_asynchronous(action)
    ]

    shares = [working_s(each.time_s) / each.time_s if each.time_s else 0.0 for each in beside]

    def alone(own: Span) -> Span:
        delays_s = (
            share
            * max(
                0.0,
                min(own.start_s + own.time_s, each.start_s + each.time_s)
                - max(own.start_s, each.start_s),
            )
            for each, share in zip(beside, shares, strict=True)
            if each is not own
        )
        return Span(own.start_s, max(0.0, own.time_s - math.fsum(delays_s)))

    if not any(shares):
        return step
    return replace(step, spans=tuple(map(alone, step.spans)))


def within_steps(law: AffinePageCost, transfers: Sequence[tuple[float, float]]) -> AffinePageCost:
    """The law with what watched transfers say about those within a step.

    Args:
        law: costs of transfers by themselves.
        transfers: seconds of each by itself, as the law has it, and within a step. Without any, the
            law stays as it is.
    """
    if not transfers:
        return law
    alone_s, in_step_s = np.array(transfers, dtype=np.float64).T
    grown = law.model_copy(update={"growth_in_steps": _growth(law.fixed_s, alone_s, in_step_s)})
    expected_s = [alone * grown.growth(alone) for alone in alone_s.tolist()]
    (single,) = later_intervals([(in_step_s / expected_s).tolist()])
    factor = float(in_step_s.sum()) / math.fsum(expected_s)
    interval = Interval(median=factor, low=min(single.low, factor), high=max(single.high, factor))
    return grown.model_copy(update={"in_steps": interval})


def processor_share(sittings: Iterable[Sitting]) -> float | None:
    """Share of the time of their transfers that the processor spends on them; None if unknown.

    Each sitting counts with the time of its transfers.
    """
    known = [each for each in sittings if each.transfers_processor_s is not None]
    transfers_s = math.fsum(s for each in known for _, s in (*each.page_in, *each.page_out))
    working_s = math.fsum(each.transfers_processor_s or 0.0 for each in known)
    return min(1.0, working_s / transfers_s) if transfers_s > 0 else None


def by_themselves(storage: StorageCosts | None) -> StorageCosts | None:
    """The costs of transfers by themselves, without what steps change."""
    if storage is None:
        return None
    alone = {"in_steps": None, "growth_in_steps": 0.0}
    read, write = (law.model_copy(update=alone) for law in (storage.read, storage.write))
    return storage.model_copy(update={"read": read, "write": write, "processor_share": None})


def _growth(fixed_s: float, alone_s: NDArray[np.float64], in_step_s: NDArray[np.float64]) -> float:
    from scipy.optimize import nnls

    is_known = in_step_s > 0  # a clock may tick less often
    columns = np.column_stack([alone_s, np.maximum(0.0, alone_s - fixed_s)])[is_known]
    rows = columns / in_step_s[is_known, None]
    # The unknowns are f and f·g.
    (factor, grown), _ = nnls(np.vstack([rows, [0.0, _PULL]]), np.append(np.ones(len(rows)), 0.0))
    return float(grown / factor) if factor > 0 else 0.0

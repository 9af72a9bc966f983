"""Costs of paging tensors without their zeros.

The profile says how long tensors became in runs that counted their zeros, and what packing and
unpacking cost. A tensor is packed only if both ways then take less time and less energy than
without packing. A schedule therefore costs no more than without packing, whatever it pages.

The costs are those of the median over these runs, and their intervals cover one later run. A step
with other data may take more, up to the time of packing more than without: a tensor that would not
become shorter stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from devices.operation import OpSpec
from devices.profile import DeviceProfile, Interval, PackedTensor, StorageCosts
from networks.training.packing import packable, packing_spec
from networks.training.step import TrainingStep
from solver.costing.model import CostModel, NotPredictable
from solver.costing.page_intervals import PageIntervals, page_in_intervals, page_out_intervals


@dataclass(frozen=True)
class PackedTransfers:
    """Costs of paging a packed tensor, of which ``packed_bytes`` are left in the median."""

    packed_bytes: int
    page_out: PageIntervals
    page_in: PageIntervals


def packed_transfers(
    step: TrainingStep, profile: DeviceProfile, model: CostModel
) -> dict[str, PackedTransfers]:
    """Costs of the tensors of a step that are packed, by name.

    Args:
        step: The training step.
        profile: Costs of the board, with counts of zeros.
        model: Predictions from the same profile.
    """
    storage = profile.storage
    if storage is None or not storage.packs:
        return {}
    found: dict[str, PackedTransfers] = {}
    for tensor in packable(step):
        counted = profile.packed.get((tensor.name, tensor.bytes))
        packed = None if counted is None else _transfers(profile, model, storage, counted)
        if packed is None:
            continue
        if _is_less(packed.page_out, page_out_intervals(storage, tensor.bytes)) and _is_less(
            packed.page_in, page_in_intervals(storage, tensor.bytes)
        ):
            found[tensor.name] = packed
    return found


def _besides(profile: DeviceProfile, model: CostModel, spec: OpSpec) -> PageIntervals | None:
    """Cost of packing or unpacking, measured or predicted; None if neither is known."""
    operation = profile.by_spec.get(spec)
    if operation is not None:
        cost = operation.isolated(profile.cost_basis)
        return PageIntervals(cost.time_s, cost.energy_j)
    try:
        predicted = model.predict(spec)
    except NotPredictable:
        return None
    return PageIntervals(predicted.time_s, predicted.energy_j)


def _transfers(
    profile: DeviceProfile, model: CostModel, storage: StorageCosts, counted: PackedTensor
) -> PackedTransfers | None:
    """Costs of a tensor if it is packed; None if those of packing are not known."""
    packing = _besides(profile, model, packing_spec("page_out", counted.bytes))
    unpacking = _besides(profile, model, packing_spec("page_in", counted.bytes))
    if packing is None or unpacking is None:
        return None
    left = counted.packed_bytes

    def out(size: float) -> PageIntervals:
        return page_out_intervals(storage, math.ceil(size), erased_bytes=counted.bytes)

    def back(size: float) -> PageIntervals:
        return page_in_intervals(storage, math.ceil(size))

    return PackedTransfers(
        packed_bytes=math.ceil(left.median),
        page_out=_between(out(left.low), out(left.median), out(left.high)).plus(packing),
        page_in=_between(back(left.low), back(left.median), back(left.high)).plus(unpacking),
    )


def _between(low: PageIntervals, middle: PageIntervals, high: PageIntervals) -> PageIntervals:
    """The middle one, with the lower end of the lowest and the upper end of the highest."""
    energy_j = None
    if low.energy_j is not None and middle.energy_j is not None and high.energy_j is not None:
        energy_j = _ends(low.energy_j, middle.energy_j, high.energy_j)
    return PageIntervals(_ends(low.time_s, middle.time_s, high.time_s), energy_j)


def _ends(low: Interval, middle: Interval, high: Interval) -> Interval:
    return Interval(
        median=middle.median, low=min(low.low, middle.low), high=max(high.high, middle.high)
    )


def _is_less(packed: PageIntervals, whole: PageIntervals) -> bool:
    if packed.energy_j is None or whole.energy_j is None:
        return False
    return (
        packed.time_s.median < whole.time_s.median
        and packed.energy_j.median < whole.energy_j.median
    )

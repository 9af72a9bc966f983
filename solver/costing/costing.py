"""``cost_graph``: a costed graph from a training step and a device profile.

The cost of an op is what the profile measured of its operation: in this op's place of a watched
step; else in any place of one; else by itself, and carried over into the op's situation if steps of
other operations were watched. If the operation was not measured and the profile states rates, the
cost is its FLOP at those rates; otherwise it is predicted from the operations that were measured,
in the op's situation, and the result lists it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError

from devices.documents.explain import explain
from devices.errors import InputError
from devices.operation import OpSpec
from devices.plan import ROW_CHECKSUM_BYTES
from devices.profile import (
    ComputeRates,
    Cost,
    DeviceProfile,
    Interval,
    OperationCost,
    PlaceCost,
    StorageCosts,
)
from devices.published import published_flop
from devices.quantities import MOST_COST
from networks.training.step import TrainingStep
from solver.costing.model import CostInStep, CostModel, NotPredictable
from solver.costing.packing import PackedTransfers, packed_transfers
from solver.costing.page_intervals import PageIntervals, page_in_intervals, page_out_intervals
from solver.costing.situation import BY_ITSELF, Situation, situations
from solver.costing.uncosted import uncosted_graph
from solver.problem.graph import CostedGraph, Op, Origin, PageCost
from solver.time_limit import check_time

_WITH_ENERGIES = "profile the board again with a meter, or with nominal_power_w in its description"


class CostingError(InputError):
    """The profile lacks costs of a step; the message names the profile and what is missing."""


@dataclass(frozen=True)
class Predicted:
    """An operation that was not measured: its costs, as predicted from others.

    ``basis`` names the measured operations that the figures come from. ``occurrences`` counts the
    ops of the training step that this operation costs; time and energy are the means over these.
    """

    spec: OpSpec
    time_s: Interval
    energy_j: Interval
    workspace_bytes: int
    basis: str
    occurrences: int

    @property
    def step_time_s(self) -> Interval:
        """The operation's part in the time of a step in which every op is computed once."""
        return self.time_s.scaled(self.occurrences)


@dataclass(frozen=True)
class CostingResult:
    """A costed graph, and the origin of its costs.

    ``predicted`` lists the distinct operations with predicted costs, ``in_context`` those whose
    costs were measured in the context of a schedule.
    """

    graph: CostedGraph
    predicted: tuple[Predicted, ...]
    in_context: tuple[OpSpec, ...]

    @property
    def step_time_s(self) -> Interval:
        """Time of a step in which every op is computed once, and nothing is paged.

        Ops of one operation share its error; the errors of different ones correlate as the graph
        states (GUM, JCGM 100:2008, 5.2.2).
        """
        below: dict[str, float] = {}
        above: dict[str, float] = {}
        for op in self.graph.ops:
            key = op.cost_key or op.name
            low, high = op.time_s_interval or (op.time_s, op.time_s)
            below[key] = below.get(key, 0.0) + op.time_s - low
            above[key] = above.get(key, 0.0) + high - op.time_s
        common = self.graph.error_correlation or 0.0
        total = math.fsum(op.time_s for op in self.graph.ops)
        halves = [
            math.sqrt(
                (1.0 - common) * math.fsum(half * half for half in side.values())
                + common * math.fsum(side.values()) ** 2
            )
            for side in (below, above)
        ]
        return Interval(median=total, low=max(0.0, total - halves[0]), high=total + halves[1])


def cost_graph(
    step: TrainingStep,
    profile: DeviceProfile,
    strict: bool = False,
    model: CostModel | None = None,
) -> CostingResult:
    """Cost every operation and tensor of a training step.

    Args:
        step: The training step of a network.
        profile: Measured or published costs of a device.
        strict: Whether to fail rather than predict the cost of an operation.
        model: The cost model of the profile. Steps that share it share its laws, which take seconds
            to fit; None for a model of its own.

    Returns:
        The costed graph, and the operations whose costs are predicted or measured in context.

    Raises:
        CostingError: The profile has no energies or implausible costs; has too few operations to
            predict the others from; has no paging costs, but parameters are kept in storage; or,
            with ``strict``, an operation was not measured.
        OutOfTime: The enforced time limit has passed.
    """
    model = CostModel(profile) if model is None else model
    costs: dict[_Execution, _Cost] = {}
    missing: dict[OpSpec, dict[_Execution, int]] = {}
    executions = _executions(step, profile)
    for execution, occurrences in Counter(executions).items():
        check_time()
        spec = execution.spec
        if spec in profile.by_spec:
            costs[execution] = _measured(profile, model, execution)
        elif profile.rates is not None:
            costs[execution] = _at_rates(profile, profile.rates, spec, model.workspace_bytes(spec))
        else:
            missing.setdefault(spec, {})[execution] = occurrences
    if missing and strict:
        raise CostingError(
            f"{profile.name}: {len(missing)} of the {len(step.costed_specs)} operations of"
            f" {step.name} are not measured: {'; '.join(spec.key for spec in missing)}"
        )
    predictions = [_predictions(profile, model, own) for own in missing.values()]
    predicted = tuple(prediction for prediction, _ in predictions)
    for _, own in predictions:
        costs |= own
    in_context = tuple(spec for spec in step.costed_specs if _is_in_context(profile, spec))
    try:
        packed = packed_transfers(step, profile, model)
        in_order = [costs[execution] for execution in executions]
        graph = _costed(step, profile, in_order, packed, len(predicted), len(in_context))
    except ValidationError as error:
        where = f"{profile.name}: {step.name} has implausible costs or sizes"
        raise CostingError(explain(error, CostedGraph, where)) from None
    return CostingResult(graph, predicted, in_context)


@dataclass(frozen=True)
class _Cost:
    """Cost of an operation; ``key`` names the measurement or prediction, None for a rate."""

    key: str | None
    time_s: Interval
    energy_j: Interval
    workspace_bytes: int
    is_predicted: bool = False


class _Execution(NamedTuple):
    """An operation in its situation in a step."""

    spec: OpSpec
    situation: Situation


def _executions(step: TrainingStep, profile: DeviceProfile) -> list[_Execution]:
    """Operations of the ops of a step, in their order."""
    found = situations(step, profile.board.last_level_cache_bytes)
    return [_Execution(op.spec.costed_as, own) for op, own in zip(step.ops, found, strict=True)]


def _measured(profile: DeviceProfile, model: CostModel, execution: _Execution) -> _Cost:
    """Cost of a measured operation: within a step if known, else by itself."""
    spec, situation = execution
    cost = cost_in_step(profile, model, spec, situation)
    if cost is None or cost.energy_j is None:
        raise CostingError(
            f"{profile.name}: {spec} has a time but no energy", remedy=_WITH_ENERGIES
        )
    return _Cost(spec.key, cost.time_s, cost.energy_j, profile.by_spec[spec].workspace_bytes)


def cost_in_step(
    profile: DeviceProfile, model: CostModel, spec: OpSpec, situation: Situation = BY_ITSELF
) -> Cost | PlaceCost | CostInStep | None:
    """The cost that graphs take of a measured operation, except in places that were watched.

    None if no cost of it has an energy.

    Args:
        profile: costs of the operation by itself, in context and in places.
        model: the model of the same profile.
        spec: an operation that the profile has measured.
        situation: that of an op of a step; it matters where no step with this operation was
            watched.
    """
    costs = _costs_of(profile.by_spec[spec], profile, model, _Execution(spec, situation))
    return next((cost for cost in costs if cost.energy_j is not None), None)


def _costs_of(
    operation: OperationCost, profile: DeviceProfile, model: CostModel, execution: _Execution
) -> Iterator[Cost | PlaceCost | CostInStep]:
    """Costs of a measured operation, the best first; some may have no energy."""
    if operation.in_context is None:
        if operation.op in profile.elsewhere:
            yield profile.elsewhere[operation.op]
        if (carried := model.carried_over(*execution)) is not None:
            yield carried
    yield operation.cost(profile.cost_basis)


def _is_in_context(profile: DeviceProfile, spec: OpSpec) -> bool:
    operation = profile.by_spec.get(spec)
    return operation is not None and (
        operation.in_context is not None or operation.op in profile.elsewhere
    )


def _at_rates(
    profile: DeviceProfile, rates: ComputeRates, spec: OpSpec, workspace_bytes: int
) -> _Cost:
    flop = published_flop(spec)
    time_s, energy_j = flop / rates.flop_per_s, flop / rates.flop_per_j
    if max(time_s, energy_j) > MOST_COST:
        raise CostingError(
            f"{profile.name}: {spec.key} takes {time_s:g} s and {energy_j:g} J at the profile's"
            f" rates; allowed: at most {MOST_COST:g} seconds and joules"
        )
    return _Cost(
        None, Interval.exact(time_s), Interval.exact(energy_j), workspace_bytes=workspace_bytes
    )


# --- prediction -------------------------------------------------------------------------------


def _predictions(
    profile: DeviceProfile, model: CostModel, occurrences: Mapping[_Execution, int]
) -> tuple[Predicted, dict[_Execution, _Cost]]:
    """Predict the executions of an operation that was not measured, of which a step has so many."""
    found = {}
    for execution in occurrences:
        check_time()
        try:
            found[execution] = model.predict(*execution)
        except NotPredictable:
            if math.isfinite(model.doubt(execution.spec)):
                raise CostingError(
                    f"{profile.name}: {execution.spec} is not measured, and too few measured"
                    " operations have energies to predict its energy",
                    remedy=_WITH_ENERGIES,
                ) from None
            raise CostingError(
                f"{profile.name}: {execution.spec} is not measured, and the"
                f" {len(profile.operations)} measured operations do not suffice to predict it",
                remedy="profile the board with this model",
            ) from None
    spec = next(iter(found)).spec
    first = next(iter(found.values()))
    predicted = Predicted(
        spec,
        _mean([(found[each].time_s, count) for each, count in occurrences.items()]),
        _mean([(found[each].energy_j, count) for each, count in occurrences.items()]),
        first.workspace_bytes,
        first.basis,
        sum(occurrences.values()),
    )
    costs = {
        execution: _Cost(
            spec.key, each.time_s, each.energy_j, each.workspace_bytes, is_predicted=True
        )
        for execution, each in found.items()
    }
    return predicted, costs


def _mean(counted: Sequence[tuple[Interval, int]]) -> Interval:
    """Mean of costs that share their errors, each with the number of ops that have it."""
    total = sum(count for _, count in counted)
    return Interval(
        median=math.fsum(each.median * count for each, count in counted) / total,
        low=math.fsum(each.low * count for each, count in counted) / total,
        high=math.fsum(each.high * count for each, count in counted) / total,
    )


# --- the graph --------------------------------------------------------------------------------


def _costed(
    step: TrainingStep,
    profile: DeviceProfile,
    costs: Sequence[_Cost],
    packed: Mapping[str, PackedTransfers],
    predictions: int,
    in_context: int,
) -> CostedGraph:
    uncosted = uncosted_graph(step)
    ops = []
    for op, step_op, known in zip(uncosted.ops, step.ops, costs, strict=True):
        cost = _in_place(profile, step_op.name, known)
        ops.append(
            Op.model_validate(
                {
                    **dict(op),
                    "time_s": cost.time_s.median,
                    "energy_j": cost.energy_j.median,
                    "workspace_bytes": cost.workspace_bytes,
                    "time_s_interval": _ends(cost.time_s),
                    "energy_j_interval": _ends(cost.energy_j),
                    "cost_key": cost.key,
                }
            )
        )
    of_times, of_energies = _correlations(profile, ops, predictions > 0)
    sizes = {(tensor.bytes, tensor.stretches) for tensor in step.tensors}
    page_costs = {size: _page_costs(profile.storage, *size) for size in sizes}
    if step.parameters_in == "storage" and not all(page_costs.values()):
        raise CostingError(
            f"{profile.name}: parameters cannot be kept in storage, since the profile has no energy"
            " costs of paging",
            remedy="profile the board with its storage and a meter or nominal_power_w",
        )
    if step.parameters_in == "storage":
        _require_storable(step, profile)
    tensors = [
        tensor.model_copy(
            update=_packed_costs(packed[tensor.name])
            if tensor.name in packed
            else page_costs[step_tensor.bytes, step_tensor.stretches]
        )
        for tensor, step_tensor in zip(uncosted.tensors, step.tensors, strict=True)
    ]
    return CostedGraph(
        name=f"{uncosted.name}, on {profile.name}",
        origin=_origin(step, profile),
        energy_source=profile.energy_source,
        asynchronous_transfers=profile.storage is not None and profile.storage.dma,
        processor_share=None if profile.storage is None else profile.storage.share_beside_ops,
        handover_s=None if profile.storage is None else profile.storage.handover_beside_ops_s,
        error_correlation=of_times,
        energy_error_correlation=None if of_energies == of_times else of_energies,
        notes=tuple(_notes(step, profile, len(packed), predictions, in_context)),
        ops=tuple(ops),
        tensors=tuple(tensors),
    )


def _require_storable(step: TrainingStep, profile: DeviceProfile) -> None:
    """Raise :class:`CostingError` if the storage cannot keep what the step keeps there."""
    changed = {name for op in step.ops for name in op.in_place.values()}
    erased = profile.storage is not None and profile.storage.erase_block_bytes is not None
    for tensor in step.tensors:
        if tensor.is_table and erased and tensor.name in changed:
            raise CostingError(
                f"{profile.name}: a step changes single rows of {tensor.name}, which storage that"
                " is erased in blocks cannot store",
                remedy="keep parameters in RAM, or describe a card or a disk as storage",
            )


def _origin(step: TrainingStep, profile: DeviceProfile) -> Origin:
    build = profile.build
    return Origin(
        model=step.name if step.file is None else str(step.file.path),
        model_sha256=None if step.file is None else step.file.sha256,
        loss=step.loss,
        train=step.train,
        lora=step.lora,
        batch=step.batch,
        accumulate=step.accumulate if step.accumulate > 1 else None,
        slices=step.slices,
        codecs=True if step.codecs else None,
        optimizer=step.optimizer,
        parameters_in=step.parameters_in,
        profile=profile.name,
        kernels_sha256=None if build is None else build.kernels_sha256,
        matmul=None if build is None else build.matmul,
    )


def _in_place(profile: DeviceProfile, op: str, cost: _Cost) -> _Cost:
    """Cost of an op in its own place of a watched step; ``cost`` where it was not watched there.

    The place of a predicted operation has a time only. It has the predicted power then, with the
    prediction's relative interval, which is the wider one.
    """
    place = None if cost.key is None else profile.place.get((op, cost.key))
    if place is None:
        return cost
    energy_j = place.energy_j
    if energy_j is None and cost.is_predicted and cost.time_s.median > 0:
        energy_j = cost.energy_j.scaled(place.time_s.median / cost.time_s.median)
    if energy_j is None:
        return cost
    return _Cost(cost.key, place.time_s, energy_j, cost.workspace_bytes)


# Correlation of the errors of two predicted operations: laws share their operations, and all shapes
# of a network differ from those that were measured in the same way. With 0.1, the intervals of all
# recorded steps hold (docs/benchmarks/cost-model.md).
_PREDICTED_TOGETHER = 0.1


def _correlations(
    profile: DeviceProfile, ops: Sequence[Op], predicted: bool
) -> tuple[float | None, float | None]:
    """Largest correlations of times and of energies that a watched step states.

    Only steps that an op has its costs from count. A correlation is not less than that of predicted
    operations, if there are any.
    """
    keys = {op.cost_key for op in ops}
    steps = [step for step in profile.step_costs if any(place.key in keys for place in step.places)]
    least = [_PREDICTED_TOGETHER] if predicted else []
    of_times = [step.correlation for step in steps]
    of_energies = [
        step.correlation if step.energy_correlation is None else step.energy_correlation
        for step in steps
    ]
    return max(of_times + least, default=None), max(of_energies + least, default=None)


def _ends(interval: Interval) -> tuple[float, float] | None:
    """Ends of an interval; None if it has no width."""
    return (interval.low, interval.high) if interval.low < interval.high else None


def _page_costs(
    storage: StorageCosts | None, size_bytes: int, stretches: int
) -> dict[str, PageCost]:
    """Page costs as fields of a tensor; empty if the profile has none with energies.

    Each stretch is a row of a table. Changed rows are written twice: together, and to the table.
    """
    if storage is None:
        return {}
    out = page_out_intervals(storage, size_bytes)
    back = page_in_intervals(storage, size_bytes)
    if stretches > 1:
        row_bytes = size_bytes // stretches + ROW_CHECKSUM_BYTES
        out = out.plus(page_out_intervals(storage, row_bytes).scaled(stretches))
        back = page_in_intervals(storage, row_bytes).scaled(stretches)
    return _fields(out, back)


def _packed_costs(packed: PackedTransfers) -> dict[str, PageCost | int]:
    """Page costs of a packed tensor as fields of it."""
    return {**_fields(packed.page_out, packed.page_in), "packed_bytes": packed.packed_bytes}


def _fields(out: PageIntervals, back: PageIntervals) -> dict[str, PageCost]:
    if out.energy_j is None or back.energy_j is None:
        return {}
    return {
        "page_out": _page_cost(out.time_s, out.energy_j),
        "page_in": _page_cost(back.time_s, back.energy_j),
    }


def _page_cost(time_s: Interval, energy_j: Interval) -> PageCost:
    return PageCost(
        time_s=time_s.median,
        energy_j=energy_j.median,
        time_s_interval=_ends(time_s),
        energy_j_interval=_ends(energy_j),
    )


def _notes(
    step: TrainingStep, profile: DeviceProfile, packed: int, predictions: int, in_context: int
) -> Iterator[str]:
    yield from profile.notes
    if step.slices is not None:
        weights, activations = step.slices.weights, step.slices.activations
        of_activations = "" if activations is None else f", activations of at most {activations}"
        yield (
            f"weights are in parts of at most {weights} bytes{of_activations}: bounds hold for"
            " these parts"
        )
    if step.unrolled:
        yield "recurrent layers are unrolled: bounds hold for this number of steps in each"
    if step.codecs:
        yield "the backward pass reads codes of some activations: bounds hold for steps with them"
    if packed:
        yield (
            f"{packed} tensors are paged without their zeros; their sizes then are medians over"
            " runs that counted zeros"
        )
    if profile.operations:
        yield f"operation costs are medians with a {profile.cost_basis} cache"
    if in_context:
        yield (
            f"costs of {in_context} of {len(step.costed_specs)} distinct operations were measured"
            " within a training step"
        )
    if predictions:
        yield (
            f"{predictions} of {len(step.costed_specs)} distinct operations were not measured;"
            " their costs are predicted"
        )
    if profile.rates is not None:
        tiles = profile.rates.tiles
        yield (
            "costs of operations that were not measured are their FLOP at published rates, with "
            + ("workspace 0" if tiles is None else f"the workspace of kernels in {tiles} tiles")
        )
    if profile.storage is None:
        yield "the profile has no storage: nothing can be paged"
    elif profile.storage.read_cost(1)[1] is None or profile.storage.write_cost(1)[1] is None:
        yield "the profile's storage costs have no energies: nothing can be paged"

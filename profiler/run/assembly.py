"""Assemble the device profile from all trials of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from devices.description import DeviceDescription
from devices.errors import TooFewTrials
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from devices.profile import (
    Additivity,
    Build,
    CacheState,
    Cost,
    DeviceProfile,
    EnergySource,
    MatmulComparison,
    MeterRecord,
    OperationCost,
    ProfiledNetwork,
    StorageCosts,
)
from profiler.boards.base import BoardFacts
from profiler.meters.nominal import is_instrument
from profiler.run.storage_costs import energy_notes, storage_costs
from profiler.run.table import TrialTable
from profiler.run.trials import Trial
from profiler.script.windows import CACHE_STATES, BlockContent, OpWindow, StepWindow
from profiler.script.writer import COLD_CACHES, Memory, cold_copies, operand_bytes
from profiler.statistics import later_intervals, median_interval

FEWEST_TRIALS = 3
"""Valid trials that the median of an operation needs; with fewer blocks, all."""

_STEAL_WORTH_A_NOTE = 0.01
_PREEMPTION_WORTH_A_NOTE = 0.05
_NAMED_OPERATIONS = 3


@dataclass(frozen=True)
class RunResult:
    """Everything that a profile is made from. ``energy_source`` and ``meter`` are None if the board
    has neither a meter nor a nominal power. ``leaves_out_void``: operations with too few valid
    trials are left out, if some have enough."""

    description: DeviceDescription
    facts: BoardFacts
    build: Build
    matmul_comparison: MatmulComparison | None
    content: BlockContent
    step: ExecutionPlan | None
    memory: Memory
    table: TrialTable
    blocks: int
    energy_source: EnergySource | None
    meter: MeterRecord | None
    storage_place: str | None
    networks: tuple[ProfiledNetwork, ...]
    leaves_out_void: bool = False

    @property
    def needed(self) -> int:
        """Valid trials that every operation needs."""
        return min(FEWEST_TRIALS, self.blocks)


def assemble(run: RunResult) -> DeviceProfile:
    """Assemble the device profile of a finished run.

    Raises:
        TooFewTrials: An operation or the whole step has too few valid trials; the message names the
            first one.
    """
    left_out: tuple[OpSpec, ...] = ()
    if run.leaves_out_void:
        run, left_out = _without_void(run)
    _require_valid(run)
    costs = _costs(run)
    operations = tuple(_operation(run, spec, costs) for spec in run.content.specs)
    additivity = _additivity(run, run.step, operations) if run.step is not None else None
    idle_w = list(run.table.idle_power_w().values())
    storage = storage_costs(
        run.description.storage, run.storage_place, run.content, run.table, run.facts.handover_s
    )
    return DeviceProfile(
        name=run.description.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        energy_source=_energy_source(run),
        meter=run.meter,
        board=run.facts.identity.model_copy(
            update={
                "cpu_frequency_hz": _frequency_hz(run),
                "available_bytes": run.facts.available_bytes,
            }
        ),
        build=run.build,
        networks=run.networks,
        matmul_comparison=run.matmul_comparison,
        idle_power_w=(
            later_intervals([idle_w])[0]
            if idle_w and run.meter is not None and is_instrument(run.meter)
            else None
        ),
        cost_basis=_cost_basis(additivity),
        operations=operations,
        storage=storage,
        additivity=additivity,
        notes=(*_notes(run, storage), *_void_notes(left_out)),
    )


def _energy_source(run: RunResult) -> EnergySource:
    """Origin of the energies. The times of an emulated board are emulated too, so it counts as
    "emulated" even without energies."""
    if run.description.emulator is not None:
        return "emulated"
    return run.energy_source or "estimated"


def _without_void(run: RunResult) -> tuple[RunResult, tuple[OpSpec, ...]]:
    """The run without operations that have too few valid trials, and these; all if none has."""
    lacking = tuple(
        spec
        for spec in run.content.specs
        if any(
            len(run.table.valid(OpWindow(spec, state).label)) < run.needed
            for state in run.content.states
        )
    )
    specs = tuple(spec for spec in run.content.specs if spec not in lacking)
    if not specs:
        return run, ()
    return replace(run, content=replace(run.content, specs=specs)), lacking


def _void_notes(left_out: Sequence[OpSpec]) -> Iterator[str]:
    if left_out:
        named = ", ".join(spec.key for spec in left_out[:_NAMED_OPERATIONS])
        more = len(left_out) - _NAMED_OPERATIONS
        yield (
            f"Left out, since too few trials were valid: {named}"
            f"{f' and {more} more operations' if more > 0 else ''}."
        )


def _require_valid(run: RunResult) -> None:
    needed = run.needed
    labels = _op_labels(run)
    if run.step is not None:
        labels += [StepWindow(index).label for index in range(run.content.step_windows)]
    lacking = [label for label in labels if len(run.table.valid(label)) < needed]
    if not lacking:
        return
    label = lacking[0]
    reasons = {trial.void for trial in run.table.void(label) if trial.void}
    others = f" ({len(lacking) - 1} more windows have too few)" if len(lacking) > 1 else ""
    raise TooFewTrials(
        f"{run.description.name}: {label}: {len(run.table.valid(label))} valid trials of"
        f" {run.blocks}, {needed} are needed; void because {'; '.join(sorted(reasons))}{others}."
        " Remove the cause (pin the frequency, cool the board, check its power supply, end other"
        " programs) and start the same command again: valid trials are kept"
    )


def _op_labels(run: RunResult) -> list[str]:
    content = run.content
    return [OpWindow(spec, state).label for spec in content.specs for state in content.states]


def _operation(run: RunResult, spec: OpSpec, costs: Mapping[str, Cost]) -> OperationCost:
    """Warm and cold cost of one operation. Without a data cache, the one measured state stands for
    both."""
    warm = costs[OpWindow(spec, "warm").label]
    return OperationCost(
        op=spec.key,
        workspace_bytes=run.memory.workspace_bytes[spec],
        warm=warm,
        cold=costs.get(OpWindow(spec, "cold").label, warm),
    )


def _costs(run: RunResult) -> dict[str, Cost]:
    """Cost of every window of an operation, by label. A block is a sitting: a process of its own,
    with other addresses and in another order."""
    times = {
        label: run.table.values(label, lambda trial: trial.time_s) for label in _op_labels(run)
    }
    energies = {label: run.table.values(label, Trial.execution_energy_j) for label in times}
    metered = [label for label, values in energies.items() if values]
    time_s = dict(zip(times, later_intervals(list(times.values())), strict=True))
    energy_j = dict(
        zip(metered, later_intervals([energies[label] for label in metered]), strict=True)
    )
    return {
        label: Cost(
            time_s=time_s[label],
            energy_j=energy_j.get(label),
            trials=len(times[label]),
            void_trials=len(run.table.void(label)),
        )
        for label in times
    }


def _additivity(
    run: RunResult, step: ExecutionPlan, operations: Sequence[OperationCost]
) -> Additivity | None:
    cost = {operation.op: operation for operation in operations}
    per_block: dict[int, list[float]] = {}
    for index in range(run.content.step_windows):
        for block, trial in run.table.valid(StepWindow(index).label).items():
            per_block.setdefault(block, []).append(trial.time_s)
    steps = [statistics.median(times) for _, times in sorted(per_block.items())]
    if not steps:
        return None
    return Additivity(
        model=step.name,
        step_s=median_interval(steps),
        sum_warm_s=math.fsum(
            cost[op.spec.costed_as.key].warm.time_s.median for op in step.computes
        ),
        sum_cold_s=math.fsum(
            cost[op.spec.costed_as.key].cold.time_s.median for op in step.computes
        ),
    )


def _cost_basis(additivity: Additivity | None) -> CacheState:
    """The cache state whose sum is nearer to the time of the whole step; "cold" without a step."""
    if additivity is None:
        return "cold"
    warm, cold = (abs(math.log(additivity.ratio(state))) for state in CACHE_STATES)
    return "warm" if warm < cold else "cold"


def _frequency_hz(run: RunResult) -> float | None:
    """Median frequency under load, or the frequency that the board reported while idle."""
    seen = [
        trial.frequency_after_khz
        for harness_run in run.table.harness_runs
        for trial in harness_run.trials
        if trial.frequency_after_khz and trial.void is None
    ]
    return statistics.median(seen) * 1e3 if seen else run.facts.identity.cpu_frequency_hz


def _notes(run: RunResult, storage: StorageCosts | None) -> Iterator[str]:
    if run.energy_source is None:
        yield "No energy: the board has neither a meter nor a nominal power."
    meter = run.meter
    if meter is not None and is_instrument(meter) and meter.remembered_s is None:
        remedy = hasattr(run.description.meter, "integration_s")
        yield (
            "How long a reading of the meter averages is not known: energies are right only if that"
            f" is short beside a window.{' Describe integration_s.' if remedy else ''}"
        )
    if run.content.transfers and storage is None:
        yield (
            "No storage costs: fewer than two transfer sizes have valid trials, or more transfers"
            " would have exceeded the write budget; measure again with a larger"
            " --storage-budget-mib."
        )
    if storage is not None and run.energy_source is not None:
        yield from energy_notes(storage, run.content, run.table)
    if run.step is not None and not run.content.step_windows:
        yield (
            f"A whole step of {run.step.name} with every tensor in memory does not fit into the"
            " board: additivity was not checked."
        )
    yield from _unvaried(run)
    if not run.facts.is_cache_known:
        assumed = run.facts.last_level_cache_bytes
        yield (
            "The board does not report the size of its last-level cache;"
            f" {assumed} bytes are assumed."
        )
    yield from _cold_note(run)
    yield from _disturbance_notes(run)


def _unvaried(run: RunResult) -> Iterator[str]:
    """State what the intervals cover, and what no block could vary."""
    if run.blocks == 1:
        yield "One block gives no intervals."
        return
    headers = [harness_run.header for harness_run in run.table.harness_runs]
    starts = [datetime.fromisoformat(header.started) for header in headers]
    span_s = (max(starts) - min(starts)).total_seconds() + headers[-1].duration_s
    boots = len({header.boot_id for header in headers})
    yield (
        f"Intervals cover the differences between {run.blocks} blocks within"
        f" {_duration(span_s)}, each in another order"
        f"{'' if run.description.firmware else ' and in a process of its own'}."
        f" Not varied: {'the boot, ' if boots == 1 else ''}the hour, with its temperature and its"
        " other programs. check measures again at another one."
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _cold_note(run: RunResult) -> Iterator[str]:
    cache_bytes = run.facts.last_level_cache_bytes
    if "cold" not in run.content.states:
        yield "The board has no data cache: warm and cold costs are one measurement."
        return
    lukewarm = [
        spec
        for spec in run.content.specs
        if cold_copies(spec, run.memory) * operand_bytes(spec) < COLD_CACHES * cache_bytes
    ]
    if lukewarm:
        named = ", ".join(spec.key for spec in lukewarm[:_NAMED_OPERATIONS])
        more = len(lukewarm) - _NAMED_OPERATIONS
        yield (
            f"Memory is too small to measure {named}{f' and {more} more' if more > 0 else ''}"
            " fully cache-cold."
        )


def _disturbance_notes(run: RunResult) -> Iterator[str]:
    steal = max(
        (harness_run.header.steal_share for harness_run in run.table.harness_runs), default=0.0
    )
    if steal > _STEAL_WORTH_A_NOTE:
        yield f"The hypervisor took up to {steal:.0%} of a block's time."
    preempted: Mapping[str, list[float]] = {
        label: run.table.values(label, lambda trial: trial.preempted_share)
        for label in _op_labels(run)
    }
    shares = [share for values in preempted.values() for share in values]
    if shares and statistics.mean(shares) > _PREEMPTION_WORTH_A_NOTE:
        yield (
            f"Other programs had the processor for {statistics.mean(shares):.0%} of the windows'"
            " time. That time is left out; the intervals are wider because of it."
        )
    for reason, count in run.table.void_reasons().most_common():
        yield f"{count} void trials: {reason}."

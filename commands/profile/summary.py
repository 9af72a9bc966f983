"""Printouts of ``profile``: the plan before measuring, and the costs after it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from commands.console import Console
from commands.wording import short_key
from devices.documents.readable import si, size, time_words
from devices.profile import DeviceProfile, MatmulComparison, StepCosts, StorageCosts
from profiler.run.preview import ProfilePlan, StoragePlan
from replay.costs.watch import SITTINGS, STEPS


def announce(console: Console, device: str, plan: ProfilePlan) -> None:
    """Print what will be measured, and what will be written to storage."""
    console.say(
        f"{device}: {plan.operations} distinct operations, {plan.blocks} blocks of"
        f" {plan.windows_per_block} windows, about {plan.estimated_s / 60:.1f} min"
    )
    if plan.storage is not None:
        _announce_storage(console, plan.storage)


def announce_watching(console: Console, models: Sequence[str], plan: ProfilePlan) -> None:
    """Print which training steps will be watched, and what that may write to storage."""
    written = ""
    if plan.storage is not None:
        written = f"; schedules that page write at most {size(plan.storage.budget_bytes)} more"
    console.say(
        f"besides, the step of {' and of '.join(models)}, watched action by action, in about"
        f" {SITTINGS} sittings of at most {STEPS} steps{written}"
    )


def announce_sweep(console: Console, limit_s: float) -> None:
    """Print that shapes for a model of any network's costs will be measured."""
    console.say(
        f"then shapes of every kind that networks use, for {limit_s / 60:g} min; each round"
        " measures those whose costs are least sure"
    )


def _announce_storage(console: Console, plan: StoragePlan) -> None:
    console.say(
        f"storage: {plan.place}, at most {size(plan.budget_bytes)} written"
        f" (about {size(plan.written_bytes)})"
    )
    if plan.erased_blocks:
        endurance = "unknown" if plan.endurance_cycles is None else str(plan.endurance_cycles)
        console.say(
            f"storage: up to {plan.erased_blocks} erase blocks are erased, each at most"
            f" {plan.cycles} times (endurance: {endurance} cycles)"
        )


def summarise(console: Console, result: DeviceProfile) -> None:
    """Print the slowest operations, additivity, storage costs and notes."""
    label = result.energy_source
    rows = [["operation", time_words(label), "95 % interval", f"energy ({label})"]]
    costs = [(operation.op, operation.cost(result.cost_basis)) for operation in result.operations]
    slowest = sorted(costs, key=lambda item: -item[1].time_s.median)[:8]
    for key, cost in slowest:
        time_s = cost.time_s
        half = (time_s.high - time_s.low) / 2 / time_s.median if time_s.median else 0.0
        energy = si(cost.energy_j.median, "J") if cost.energy_j else "–"
        rows.append([short_key(key), si(time_s.median, "s"), f"±{100 * half:.1f} %", energy])
    console.result(
        f"the {len(slowest)} slowest of {len(costs)} operations ({result.operation_words})"
    )
    console.table(rows, right=(1, 2, 3))
    if result.additivity is not None:
        warm, cold = (100 * result.additivity.ratio(state) for state in ("warm", "cold"))
        console.result(
            f"additivity: the operations of {result.additivity.model} add up to {warm:.0f} % (warm)"
            f" and {cold:.0f} % (cold) of a whole step, {si(result.additivity.step_s.median, 's')};"
            f" costs used: {result.cost_words}"
        )
    for step in result.step_costs:
        console.result(watched_sentence(step))
    if (general := result.general) is not None:
        console.result(
            f"for any network: {general.operations} more operations,"
            f" {general.measured_s / 60:.1f} min of measuring; solve --model NAME|FILE --profile"
            f" {result.name} predicts what was not measured"
        )
    if result.matmul_comparison is not None:
        console.result(matmul_sentence(result.matmul_comparison))
    if result.storage is not None:
        _summarise_storage(console, result.storage)
    for note in result.notes:
        console.result(f"note: {note}")


def watched_sentence(step: StepCosts) -> str:
    """State how the costs of ops in their places of a step were measured."""
    schedules = list(dict.fromkeys(sitting.schedule for sitting in step.sittings))
    halves = [
        (place.time_s.high - place.time_s.low) / 2 / place.time_s.median
        for place in step.places
        if place.time_s.median
    ]
    half = f", ±{100 * statistics.median(halves):.1f} % in the median" if halves else ""
    return (
        f"in their places of a step of {step.network.model}: {len(step.places)} ops, in"
        f" {len(step.sittings)} sittings ({'; '.join(schedules)}){half}"
    )


def matmul_sentence(comparison: MatmulComparison) -> str:
    """State which implementation computes matrix products, and why."""
    library = " ".join(comparison.library.split()[:2]) or "the BLAS"
    taken, other = ("in-tree", comparison.in_tree_s), (library, comparison.cblas_s)
    if comparison.faster == "cblas":
        taken, other = other, taken
    faster = "faster" if comparison.is_certain else "not measurably slower"
    return (
        f"matrix products: {taken[0]}, which is {faster} on this board than {other[0]}:"
        f" {si(taken[1].median, 's')} against {si(other[1].median, 's')} for the same products"
    )


def _summarise_storage(console: Console, storage: StorageCosts) -> None:
    page, block = (f"{storage.page_bytes}-byte page", f"{storage.erase_block_bytes}-byte block")
    for name, cost, unit in (
        ("read", storage.read, page),
        ("write", storage.write, page),
        ("erase", storage.erase, block),
    ):
        if cost is not None:
            console.result(
                f"storage {name}: {si(cost.fixed_s, 's')} + {si(cost.per_page_s, 's')} per {unit},"
                f" fit error {100 * cost.fit_error:.0f} %"
            )

"""Check of the figures that a report of a replay states.

What was measured can only be believed. Everything else is made again from the schedule, its graph
and the measured figures, and compared: predictions, differences, traffic, diagnosis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pydantic import ValidationError

from devices.documents.unlike import unlike
from devices.profile import EnergySource, Interval, MeterRecord
from devices.quantities import MOST
from devices.replay import (
    ActivityEnergies,
    Comparison,
    ExpectedAction,
    ExpectedStep,
    OtherTime,
    ReplayedAction,
    ReplayReport,
    ScheduledAction,
    StorageCount,
    StorageUse,
)
from devices.wear import DAYS_PER_YEAR
from profiler.meters.nominal import is_instrument
from replay.expectation import expected_step
from replay.reporting.diagnosis import diagnose
from replay.reporting.report import parts_of
from solver.problem.graph import CostedGraph
from solver.problem.schedule import PageIn, PageOut, Schedule


def remade_report(
    report: ReplayReport, graph: CostedGraph, schedule: Schedule
) -> tuple[ReplayReport, Iterator[str]]:
    """Make a report again from its schedule and its measurements, and compare the two.

    Args:
        report: the report as it was read.
        graph: the schedule's graph.
        schedule: the schedule that was run, which is valid and has addresses.

    Returns:
        The report with the sentences of its diagnosis written anew, and a sentence for each figure
        that is not as stated, without the name of the file.
    """
    expected = expected_step(graph, schedule)
    try:
        remade = _remade(report, graph, schedule, expected)
    except ValidationError:
        beyond = f"states figures whose sums, products or shares are more than {MOST:g}"
        return report, iter((beyond,))
    return remade, _differences(report, remade, graph, expected)


def _differences(
    report: ReplayReport, remade: ReplayReport, graph: CostedGraph, expected: ExpectedStep
) -> Iterator[str]:
    if len(report.actions) != len(expected.actions):
        yield (
            f"states {len(report.actions)} actions; its schedule has {len(expected.actions)} that"
            " take time"
        )
    for value in unlike(_dumped(report), _dumped(remade)):
        yield (
            f"states {value.path} {value.stated}; its schedule and its other figures give"
            f" {value.found}"
        )
    for index, check in enumerate(report.values):
        if check.values > len(graph.tensors):
            yield (
                f"states values[{index}].values {check.values}; its graph has"
                f" {len(graph.tensors)} tensors"
            )
        if check.steps > report.all_steps:
            yield f"states values[{index}].steps {check.steps}; it states {report.all_steps} steps"
    if report.steps > report.all_steps:
        yield f"states steps {report.steps}; it states trained_steps {report.all_steps}"
    built, profiled = report.build.kernels_sha256, graph.origin and graph.origin.kernels_sha256
    if profiled not in {None, built}:
        yield f"states kernels {built}; those of its schedule's costs are {profiled}"
    source = report.measured_energy_source
    metered = _source_of(report.meter)
    if source not in {"emulated", metered}:
        meter = "no meter" if report.meter is None else f"the meter {report.meter.kind}"
        yield f"states measured_energy_source {source or 'nothing'}; it states {meter}"
    if source is None and report.energy_j is not None:
        yield "states energy_j; it states no measured_energy_source"
    same_board = graph.origin is not None and graph.origin.profile == report.device
    if same_board and graph.energy_source == "emulated" and source != "emulated":
        yield (
            f"states measured_energy_source {source or 'nothing'}; the costs of {report.device} in"
            " its graph are emulated"
        )


def _dumped(report: ReplayReport) -> dict[str, object]:
    """A report without the wording of its diagnosis, which may change between versions."""
    return report.model_dump(mode="json", by_alias=True, exclude={"diagnosis": {"sentences"}})


def _source_of(meter: MeterRecord | None) -> EnergySource | None:
    """The energy source on a board that is not emulated."""
    if meter is None:
        return None
    return "measured" if is_instrument(meter) else "estimated"


def _remade(
    report: ReplayReport, graph: CostedGraph, schedule: Schedule, expected: ExpectedStep
) -> ReplayReport:
    time_s = Comparison.of(expected.time_s, report.time_s.measured)
    energy_j = report.energy_j and Comparison.of(expected.energy_j, report.energy_j.measured)
    other = tuple(_other(entry, expected) for entry in report.other)
    return report.model_copy(
        update={
            "graph": graph.name,
            "origin": {} if graph.origin is None else graph.origin.stated,
            "predicted_energy_source": expected.energy_source,
            "time_s": time_s,
            "energy_j": energy_j,
            "memory": report.memory.model_copy(
                update={
                    "budget_bytes": expected.budget_bytes,
                    "peak_bytes": expected.peak_bytes,
                    "arena_bytes": expected.arena_bytes,
                }
            ),
            "storage": report.storage and _storage(report.storage, graph, schedule),
            "actions": _actions(report.actions, expected.actions),
            "other": other,
            "diagnosis": diagnose(
                time_s, parts_of(expected.actions, other, _measured(report)), report.board_word
            ),
            "activity_energies": report.activity_energies
            and _activity_energies(report.activity_energies, report.measured_energy_source),
        }
    )


def _actions(
    stated: Sequence[ReplayedAction], expected: Sequence[ExpectedAction]
) -> tuple[ReplayedAction, ...]:
    """Actions with predictions made anew; all shares are of the same measured step."""
    step_s = next((a.time_s.measured.median / a.share for a in stated if a.share), 0.0)
    return tuple(
        ReplayedAction(
            **{name: getattr(action, name) for name in ScheduledAction.model_fields},
            time_s=Comparison.of(action.time_s, replayed.time_s.measured),
            share=replayed.time_s.measured.median / step_s if step_s else 0.0,
            expected_start_s=action.start_s,
            expected_energy_j=action.energy_j,
            start_s=replayed.start_s,
            run_s=replayed.run_s,
        )
        for replayed, action in zip(stated, expected, strict=False)
    )


def _activity_energies(stated: ActivityEnergies, source: EnergySource | None) -> ActivityEnergies:
    """Energies of activities, each the product of power and time."""
    activities = []
    for each in stated.activities:
        median_j = each.power_w.median * each.time_s
        low, high = min(each.energy_j.low, median_j), max(each.energy_j.high, median_j)
        energy_j = Interval(median=median_j, low=low, high=high)
        activities.append(each.model_copy(update={"energy_j": energy_j}))
    return stated.model_copy(update={"activities": tuple(activities), "energy_source": source})


def _other(stated: OtherTime, expected: ExpectedStep) -> OtherTime:
    predicted_s = expected.waited_s if stated.what == "wait" else 0.0
    time_s = Comparison.of(Interval.exact(predicted_s), stated.time_s.measured)
    return stated.model_copy(update={"time_s": time_s})


def _measured(
    report: ReplayReport,
) -> Callable[[str, Sequence[ExpectedAction]], Interval | None]:
    """Measured seconds of a part; None for a part of several actions that is not responsible.

    The median of a sum of several actions cannot be recomputed from their medians.
    """
    action_s = {action.schedule_index: action.time_s.measured for action in report.actions}
    responsible_s = {part.what: part.time_s.measured for part in report.diagnosis.responsible}

    def measured_s(key: str, actions: Sequence[ExpectedAction]) -> Interval | None:
        if len(actions) == 1:
            return action_s.get(actions[0].schedule_index)
        return responsible_s.get(key)

    return measured_s


def _storage(stated: StorageUse, graph: CostedGraph, schedule: Schedule) -> StorageUse:
    """Traffic that follows from the schedule, and the wear that follows from the counted bytes."""

    rows = stated.row_bytes or {}
    changed = {name for op in graph.ops for name in op.in_place.values()}.intersection(rows)

    def whole_pages(size_bytes: int) -> int:
        return -(-size_bytes // stated.page_bytes) * stated.page_bytes

    def traffic(kind: type[PageIn] | type[PageOut]) -> int:
        names = [each.tensor for each in schedule.actions if isinstance(each, kind)]
        stored = [rows.get(n) or whole_pages(graph.tensor[n].stored_bytes) for n in names]
        return sum(stored)

    # The next step begins by reading the changed rows twice, wiping a record and writing the rows.
    settling_in = sum(2 * whole_pages(graph.tensor[name].bytes) for name in changed)
    settling_out = sum(rows[name] for name in changed) + (stated.page_bytes if changed else 0)
    written, worn = stated.written_bytes, stated.wear
    scheduled_bytes = traffic(PageOut) + settling_out
    years = worn.years
    if worn.at_most and worn.endurance_cycles is not None and worn.spread_bytes is not None:
        per_year = written.measured * worn.steps_per_day * DAYS_PER_YEAR
        years = worn.endurance_cycles * worn.spread_bytes / per_year if per_year else None
    return stated.model_copy(
        update={
            "read_bytes": StorageCount(
                predicted=traffic(PageIn) + settling_in, measured=stated.read_bytes.measured
            ),
            "scheduled_bytes": scheduled_bytes,
            "safety_bytes": int(written.predicted) - scheduled_bytes,
            "wear": worn.model_copy(
                update={
                    "written_bytes_per_step": written.measured,
                    "erased_blocks_per_step": stated.erased_blocks.measured,
                    "years": years,
                }
            ),
        }
    )

"""Report of a replay: measured steps compared with the expected one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from devices.description import Storage
from devices.errors import MeasurementInvalid
from devices.operation import SIGNATURES, OperationError, OpSpec
from devices.plan import ExecutionPlan
from devices.profile import Interval
from devices.replay import (
    Comparison,
    DifferingValue,
    ExpectedAction,
    ExpectedStep,
    MeasuredReplay,
    MeasuredStep,
    MemoryUse,
    OtherActivity,
    OtherTime,
    Reference,
    ReplayedAction,
    ReplayReport,
    ValueCheck,
    board_word,
)
from profiler.statistics import median_interval
from replay.reporting.diagnosis import Part, Source, diagnose
from replay.reporting.timing import ScheduledActions, WatchedStep
from replay.reporting.traffic import storage_use

# Least share of the steps that have an energy, where it counts as that of all steps.
_MOST = 0.9


@dataclass(frozen=True)
class ReportHead:
    """Head of a report.

    Attributes:
        device: the device's name.
        schedule: name of the schedule's file.
        origin: origin of the schedule's graph.
        storage: the device's storage.
    """

    device: str
    schedule: str
    origin: Mapping[str, str | int | None]
    storage: Storage | None


def replay_report(
    subject: ReportHead,
    expected: ExpectedStep,
    plan: ExecutionPlan,
    measured: MeasuredReplay,
    values: Sequence[ValueCheck],
    steps_per_day: float,
) -> ReplayReport:
    """Compare measured steps with the expected one.

    Args:
        subject: what the head of the report states.
        expected: the prediction for the schedule.
        plan: the plan that was run, lowered from that schedule.
        measured: the measured steps, some of them watched.
        values: comparisons of checksums.
        steps_per_day: for the wear of the storage.

    Raises:
        ValueError: the plan is of another schedule.
        MeasurementInvalid: no step was watched.
    """
    scheduled = ScheduledActions.of(plan, expected.actions)
    watched = [scheduled.watched(step) for step in measured.steps if step.spans]
    if not watched:
        raise MeasurementInvalid(
            f"{subject.device}: the replay of {subject.schedule} has no watched step, so that the"
            " times of single ops are unknown",
            remedy="run it again",
        )
    totals = _totals(measured.steps, watched)
    times_s = [step_s for step_s, _ in totals]
    together = measured.together
    energy_j = _energy(totals) if together is None else together.energy_j
    time_s = Comparison.of(expected.time_s, _median(times_s))
    other = _other_times(expected, scheduled, watched)

    def measured_s(_key: str, actions: Sequence[ExpectedAction]) -> Interval:
        return _median(
            math.fsum(step.spans[action.schedule_index].time_s for action in actions)
            for step in watched
        )

    return ReplayReport(
        device=subject.device,
        board=measured.board,
        build=measured.build,
        graph=expected.graph,
        schedule=subject.schedule,
        origin=subject.origin,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        predicted_energy_source=expected.energy_source,
        measured_energy_source=measured.energy_source,
        meter=measured.meter,
        steps=len(times_s),
        watched_steps=len(watched),
        time_s=time_s,
        energy_j=None if energy_j is None else Comparison.of(expected.energy_j, energy_j),
        energy_steps=None if together is None else together.steps,
        memory=MemoryUse(
            budget_bytes=expected.budget_bytes,
            peak_bytes=expected.peak_bytes,
            arena_bytes=plan.arena_bytes,
            touched_bytes=measured.counters.touched_bytes,
            process=measured.memory,
        ),
        storage=storage_use(subject.storage, plan, measured, steps_per_day),
        actions=_actions(expected.actions, watched),
        other=other,
        values=tuple(values),
        diagnosis=diagnose(
            time_s,
            parts_of(expected.actions, other, measured_s),
            board_word(measured.energy_source),
        ),
        power=measured.power,
        limits=tuple(_limits(measured, time_s, watched, totals)),
    )


def have_energies(energies_j: Sequence[float | None]) -> bool:
    """Whether so many steps have an energy that they stand for all.

    Where only some steps last long enough for the meter, those that have an energy are the longest.
    """
    return sum(energy_j is not None for energy_j in energies_j) >= _MOST * len(energies_j)


def value_check(
    against: Reference,
    plan: ExecutionPlan,
    steps: Sequence[MeasuredStep],
    reference: ExecutionPlan,
    reference_steps: Sequence[MeasuredStep],
) -> ValueCheck:
    """Compare the checksums of two runs, step by step.

    Steps that were not watched in both runs are left out.

    Args:
        against: name of the reference.
        plan: the plan that was run.
        steps: its steps.
        reference: the reference's plan.
        reference_steps: the reference's steps.

    Raises:
        ValueError: the two plans do not probe the same values.
    """
    names = [(probe.tensor, probe.what) for probe in plan.probes]
    places = {(probe.tensor, probe.what): i for i, probe in enumerate(reference.probes)}
    if set(names) != set(places):
        odd = sorted(set(names) ^ set(places))[0]
        raise ValueError(
            f"{odd[1]} {odd[0]} is probed in only one of {plan.name} and its reference"
        )
    pairs = [
        (number, ours.checksums, theirs.checksums)
        for number, (ours, theirs) in enumerate(zip(steps, reference_steps, strict=False))
        if ours.checksums and theirs.checksums
    ]
    differing = []
    for index, (tensor, what) in enumerate(names):
        place = places[tensor, what]
        wrong = tuple(n for n, ours, theirs in pairs if ours[index] != theirs[place])
        if wrong:
            differing.append(DifferingValue(tensor=tensor, what=what, steps=wrong))
    return ValueCheck(
        against=against, values=len(names), steps=len(pairs), differing=tuple(differing)
    )


# --- a step -------------------------------------------------------------------------------------


def _totals(
    steps: Sequence[MeasuredStep], watched: Sequence[WatchedStep]
) -> list[tuple[float, float | None]]:
    """Seconds and joules, if known, of every step that counts.

    Watched steps count only where all steps were watched, and without the share of time that
    checksums took, since these are not part of training.
    """
    plain = [step for step in steps if not step.spans]
    if plain:
        return [(step.time_s, step.energy_j) for step in plain]
    return [
        (
            seen.training_s,
            None if step.energy_j is None else step.energy_j * seen.training_share,
        )
        for step, seen in zip(steps, watched, strict=True)
    ]


def _energy(totals: Sequence[tuple[float, float | None]]) -> Interval | None:
    """Joules of a step; if only some steps have any, those are scaled to the median time of all."""
    known = [(step_s, joules) for step_s, joules in totals if joules is not None]
    if not known:
        return None
    if have_energies([joules for _, joules in totals]):
        return _median(joules for _, joules in known)
    typical_s = statistics.median(step_s for step_s, _ in totals)
    return _median(joules / step_s * typical_s for step_s, joules in known if step_s > 0)


def _median(values: Iterable[float]) -> Interval:
    return median_interval(list(values))


def _actions(
    expected: Sequence[ExpectedAction], watched: Sequence[WatchedStep]
) -> tuple[ReplayedAction, ...]:
    """Actions of the schedule, with medians over the steps; starts are those of the median step."""
    shown = sorted(watched, key=lambda step: step.time_s)[(len(watched) - 1) // 2]
    step_s = _median(step.training_s for step in watched).median
    found = []
    for action in expected:
        time_s = _median(step.spans[action.schedule_index].time_s for step in watched)
        span = shown.spans[action.schedule_index]
        found.append(
            ReplayedAction(
                schedule_index=action.schedule_index,
                label=action.label,
                what=action.what,
                cost_key=action.cost_key,
                kind=action.kind,
                phase=action.phase,
                asynchronous=action.asynchronous,
                time_s=Comparison.of(action.time_s, time_s),
                share=time_s.median / step_s if step_s else 0.0,
                expected_start_s=action.start_s,
                expected_energy_j=action.energy_j,
                start_s=span.start_s,
                run_s=span.time_s,
            )
        )
    return tuple(found)


def _other_times(
    expected: ExpectedStep, scheduled: ScheduledActions, watched: Sequence[WatchedStep]
) -> tuple[OtherTime, ...]:
    counts: dict[OtherActivity, int] = {
        "move": scheduled.moves,
        "probe": len(scheduled.plan.probes),
        "rows": len(scheduled.plan.selections),
        "wait": scheduled.waits,
        "between": len(scheduled.plan.actions),
    }
    predicted = {"wait": Interval.exact(expected.waited_s)}
    return tuple(
        OtherTime(
            what=what,
            count=count,
            time_s=Comparison.of(
                predicted.get(what, Interval.exact(0.0)),
                _median(step.other_s[what] for step in watched),
            ),
        )
        for what, count in counts.items()
        if count
    )


# --- diagnosis -----------------------------------------------------------------------------------

_OTHER_WORDS: Mapping[OtherActivity, str] = {
    "move": "moves of tensors in RAM, for which there is no prediction",
    "rows": "writing the changed rows of the step before to their tables, predicted with page-outs",
    "wait": "waiting for transfers that run beside ops, and in the prediction working for them",
    "between": "time between actions, spent by the executor",
}

_TRANSFER_WORDS: Mapping[str, str] = {"page_out": "paging out", "page_in": "paging in"}


def parts_of(
    expected: Sequence[ExpectedAction],
    other: Sequence[OtherTime],
    measured_s: Callable[[str, Sequence[ExpectedAction]], Interval | None],
) -> list[Part]:
    """Parts of a step, by the cost that their actions share and whose error they share.

    Args:
        expected: the predicted actions.
        other: time outside of the actions.
        measured_s: called with a cost key and its actions; returns their measured seconds in a
            step, or None to leave the part out.
    """
    sharing: dict[str, list[ExpectedAction]] = {}
    for action in expected:
        if not action.asynchronous:
            sharing.setdefault(action.cost_key, []).append(action)
    parts = [
        Part(
            key,
            actions[0].kind or _TRANSFER_WORDS[actions[0].what],
            tuple(dict.fromkeys(action.label for action in actions)),
            _source(actions[0]),
            Comparison.of(_added([action.time_s for action in actions]), time_s),
        )
        for key, actions in sharing.items()
        if (time_s := measured_s(key, actions)) is not None
    ]
    parts += [
        Part(
            entry.what,
            _OTHER_WORDS[entry.what],
            (),
            "storage" if entry.what == "wait" else "other",
            entry.time_s,
        )
        for entry in other
        if entry.what in _OTHER_WORDS
    ]
    return parts


def _added(intervals: Sequence[Interval]) -> Interval:
    """Sum of intervals with a common error: ends add up (GUM, JCGM 100:2008, 5.2.2)."""
    return Interval(
        median=math.fsum(interval.median for interval in intervals),
        low=math.fsum(interval.low for interval in intervals),
        high=math.fsum(interval.high for interval in intervals),
    )


def _source(action: ExpectedAction) -> Source:
    if action.kind is None:
        return "storage"
    if action.cost_key.partition(" ")[0] not in SIGNATURES:
        return "rate"  # parsing would look for similar kinds, which takes 10 ms
    try:
        OpSpec.parse(action.cost_key)
    except OperationError:
        return "rate"
    return "operation"


def _limits(
    measured: MeasuredReplay,
    time_s: Comparison,
    watched: Sequence[WatchedStep],
    totals: Sequence[tuple[float, float | None]],
) -> Iterator[str]:
    if all(step.spans for step in measured.steps):
        yield "every step was watched; the time of checksums is left out of the step's time"
    else:
        seen_s = _median(step.training_s for step in watched)
        if Comparison.of(time_s.measured, seen_s).beyond:
            yield (
                f"watched steps took {seen_s.median / time_s.measured.median:.2f} times as long as"
                " unwatched ones: times of single actions are those of watched steps, the step's"
                " time is that of unwatched ones"
            )
    energies_j = [joules for _, joules in totals]
    metered = sum(joules is not None for joules in energies_j)
    if measured.together is None and not metered:
        yield "no step has an energy: the board has no meter, or a step is too short for its meter"
    elif measured.together is None and not have_energies(energies_j):
        yield (
            f"the energy of a step is that of the {metered} of {len(totals)} steps that have one,"
            " scaled to the median time of all"
        )

"""Printouts of ``run``: predicted, measured and the difference."""

from __future__ import annotations

from collections.abc import Iterator

from commands.console import Console
from commands.wording import lifetime
from devices.description import DeviceDescription
from devices.documents.readable import NO_SOURCE, si, size
from devices.plan import ExecutionPlan
from devices.profile import Interval
from devices.replay import (
    ActivityEnergies,
    Comparison,
    HeldOutScores,
    ReplayReport,
    Score,
    StorageCount,
    ValueCheck,
)
from replay.reporting.activity_names import ActivityNames
from replay.runs import written_bytes_a_step

_SHOWN_ACTIONS = 12
_MOST_DIGITS = 9


def announce(
    console: Console, description: DeviceDescription, steps: int, plan: ExecutionPlan
) -> None:
    """Print what would be done, without contacting a board."""
    written = written_bytes_a_step(plan, description)
    console.document(
        {
            "device": description.name,
            "steps": steps,
            "arena_bytes": plan.arena_bytes,
            "actions": len(plan.actions),
            "written_bytes_a_step": written,
            "flashes_firmware": description.firmware is not None,
        }
    )
    console.result(
        f"{description.name}: {steps} watched and {steps} unwatched steps of {plan.name}, in an"
        f" arena of {plan.arena_bytes} bytes ({len(plan.actions)} actions); before them, if the"
        " RAM suffices, a few steps of a debug build"
    )
    if description.firmware is not None:
        console.result("firmware: one with the plan in it is flashed, and stays on the board")
    if plan.pages:
        console.result(f"storage: each step writes {size(written)}, besides the initial values")


def summarise(console: Console, report: ReplayReport) -> None:
    """Print totals, the longest actions, values, the diagnosis, memory, wear and notes."""
    console.result(
        f"{report.graph}: {report.steps} steps on {report.device},"
        f" and {report.watched_steps} watched action by action"
    )
    if report.steps_before is not None:
        console.result(f"training went on after step {report.steps_before}, of earlier runs")
    # The joules of a board without a meter are estimated, from the time that was measured.
    are_estimated = report.energy_j is not None and report.measured_energy_source == "estimated"
    head = ["", "predicted", "on the board" if are_estimated else report.board_word, "difference"]
    console.table([head, *_totals(report)], right=(1, 2, 3))
    _actions(console, report)
    if report.activity_energies is not None:
        _energies(console, report, report.activity_energies)
    console.result(
        f"{report.held_actions} of {len(report.actions)} actions, {100 * report.held_time:.0f} % of"
        " their time, lie in their predicted intervals"
    )
    if report.held_out is not None:
        console.result(_held_out(report.held_out))
    for check in report.values:
        console.result(_values(check))
    for sentence in (*report.diagnosis.sentences, *_memory(report), *_wear(report)):
        console.result(sentence)
    for limit in report.limits:
        console.result(f"note: {limit}")


def _totals(report: ReplayReport) -> Iterator[list[str]]:
    yield _row("time a step", report.time_s, "s")
    if report.energy_j is not None:
        sources = (report.predicted_energy_source, report.measured_energy_source)
        words = " / ".join(source or NO_SOURCE for source in sources)
        yield _row(f"energy a step ({words})", report.energy_j, "J")
    memory = report.memory
    yield ["arena", *_bytes(memory.arena_bytes, memory.touched_bytes)]
    if report.unscheduled_s is not None:
        measured = _interval(report.unscheduled_s, "s")
        yield ["time a step, nothing scheduled", "–", measured, "–"]
    if report.storage is not None:
        yield ["paged in a step", *_count(report.storage.read_bytes)]
        yield ["paged out a step", *_count(report.storage.written_bytes)]


def _row(name: str, figure: Comparison, unit: str) -> list[str]:
    mark = "*" if figure.beyond else " "
    measured = _interval(figure.measured, unit)
    return [name, _interval(figure.predicted, unit), measured, f"{_difference(figure)}{mark}"]


def _difference(figure: Comparison) -> str:
    return "–" if figure.difference is None else f"{100 * figure.difference:+.1f} %"


def _interval(interval: Interval, unit: str) -> str:
    """Format a median with its interval, in as many digits as tell the ends apart."""
    if interval.is_exact:
        return si(interval.median, unit)
    for digits in range(4, _MOST_DIGITS + 1):
        low, high = si(interval.low, unit, digits), si(interval.high, unit, digits)
        if low != high:
            break
    return f"{si(interval.median, unit, digits)} ({low} to {high})"


def _bytes(predicted: float, measured: float) -> list[str]:
    difference = "none" if predicted == measured else f"{measured - predicted:+.0f} B"
    return [f"{predicted:.0f} B", f"{measured:.0f} B", difference]


def _count(count: StorageCount) -> list[str]:
    return _bytes(count.predicted, count.measured)


def _actions(console: Console, report: ReplayReport) -> None:
    longest = sorted(report.actions, key=lambda action: -action.time_s.measured.median)
    measured = report.board_word
    rows = [["action of the schedule", "what", "predicted", measured, "difference", "of the step"]]
    for action in longest[:_SHOWN_ACTIONS]:
        time_s = action.time_s
        rows.append(
            [
                action.label,
                action.what,
                si(time_s.predicted.median, "s"),
                si(time_s.measured.median, "s"),
                f"{_difference(time_s)}{'*' if time_s.beyond else ' '}",
                f"{100 * action.share:.1f} %",
            ]
        )
    console.result(
        f"the {len(rows) - 1} longest of {len(longest)} actions of the schedule"
        " (*: outside the intervals)"
    )
    console.table(rows, right=(2, 3, 4, 5))


def _energies(console: Console, report: ReplayReport, found: ActivityEnergies) -> None:
    """Print the activities of a step that take the most energy."""
    source, names = found.energy_source, ActivityNames.of(report)
    most = sorted(found.activities, key=lambda each: -each.energy_j.median)
    rows = [["activity", "time a step", "power", f"energy a step ({source})", "predicted"]]
    for each in most[:_SHOWN_ACTIONS]:
        predicted_j = names.predicted_j(each.activities)
        rows.append(
            [
                names.words(each.activities),
                si(each.time_s, "s"),
                _interval(each.power_w, "W"),
                _interval(each.energy_j, "J"),
                "–" if predicted_j is None else si(predicted_j, "J"),
            ]
        )
    console.result(
        f"energies of {len(found.activities)} activities that the meter could tell apart, from"
        f" {found.readings} readings of {found.steps} watched steps"
    )
    console.table(rows, right=(1, 2, 3, 4))


def _held_out(scores: HeldOutScores) -> str:
    before, after = scores.before, scores.after
    sentence = f"held out: loss {_loss(before)} before training, {_loss(after)} after"
    if before.accuracy is not None and after.accuracy is not None:
        sentence += f"; accuracy {before.accuracy:.1%}, {after.accuracy:.1%}"
    sentence += f" ({scores.samples} samples of {scores.file}, evaluated on {scores.evaluated_on})"
    if scores.left_out:
        sentence += f"; {scores.left_out} more samples do not fill a batch and are left out"
    return sentence


def _loss(score: Score) -> str:
    return "not finite" if score.loss is None else f"{score.loss:.6g}"


def _values(check: ValueCheck) -> str:
    if check.identical:
        return (
            f"values: loss, gradients and kept tensors ({check.values} checksums a step) equal"
            f" those of {check.against} bit for bit, in each of {check.steps} steps"
        )
    named = "; ".join(
        f"{value.what} {value.tensor} after step {value.steps[0] + 1}"
        for value in check.differing[:5]
    )
    return (
        f"values DIFFER from those of {check.against}: {len(check.differing)} of {check.values}"
        f" checksums, first {named}"
    )


def _memory(report: ReplayReport) -> Iterator[str]:
    process = report.memory.process
    if process is not None:
        yield (
            f"memory: the process ran under a hard limit of {size(process.limit_bytes)}"
            f" ({process.limit}): {size(report.memory.arena_bytes)} for the arena and"
            f" {size(process.overhead_bytes)} for program, libraries and buffers; its peak in RAM"
            f" was {size(process.peak_resident_bytes)}"
        )


def _wear(report: ReplayReport) -> Iterator[str]:
    storage = report.storage
    if storage is None:
        return
    wear = storage.wear
    written = (
        f"storage: {size(wear.written_bytes_per_step)} written a step; {size(storage.safety_bytes)}"
        " of these are safety copies of the trained values, made after the step in"
        f" {_interval(storage.copies_s, 's')}, which the step's time and energy do not include"
    )
    if wear.erased_blocks_per_step:
        written += f"; {wear.erased_blocks_per_step:.3g} erase blocks erased a step"
    yield written + lifetime(wear)

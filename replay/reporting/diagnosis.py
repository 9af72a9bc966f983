"""Why a replayed step took longer or shorter than predicted: which measured figures are wrong, and
what no figure accounts for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from devices.profile import Interval
from devices.replay import Comparison, Diagnosis, Responsible

MOST_OF_IT = 0.8
"""Parts are named until they explain this much of the difference."""

_NAMED_LABELS = 3

Source: TypeAlias = Literal["operation", "storage", "rate", "other"]


@dataclass(frozen=True)
class Part:
    """All of a step that shares one figure, or one reason: ``what`` is its key, ``name`` what a
    reader calls it. ``source`` says where its prediction comes from: an operation's measured costs,
    the storage's, a published rate, or nowhere."""

    what: str
    name: str
    labels: tuple[str, ...]
    source: Source
    time_s: Comparison


def diagnose(step_s: Comparison, parts: Sequence[Part]) -> Diagnosis:
    """``parts`` add up to the step. Those that are out by more than their own intervals allow,
    furthest first, until what is left of the difference is small. Some may be out to the other
    side: they hide a part of what the others did, and were they not corrected as well, the next
    prediction would be further off."""
    if not step_s.beyond:
        return Diagnosis(responsible=(), sentences=(_within(step_s),), refine=())
    total_s = step_s.excess
    suspects = sorted(
        (part for part in parts if part.time_s.beyond),
        key=lambda part: abs(part.time_s.excess),
        reverse=True,
    )
    found: list[Part] = []
    left = 1.0
    for part in suspects:
        if abs(left) <= 1.0 - MOST_OF_IT:
            break
        found.append(part)
        left -= part.time_s.excess / total_s
    refine = tuple(part.what for part in found if part.source == "operation")
    return Diagnosis(
        responsible=tuple(
            Responsible(
                what=part.what,
                labels=part.labels,
                time_s=part.time_s,
                excess_s=part.time_s.excess,
                share=part.time_s.excess / total_s,
            )
            for part in found
        ),
        sentences=(
            _beyond(step_s),
            *(_said(part, total_s) for part in found),
            *_rest(found, left),
        ),
        refine=refine,
    )


def remedy(diagnosis: Diagnosis, device: str, run: str) -> str | None:
    """What to do so that the next prediction is better; None where nothing can be measured again.
    ``run`` is the file or directory of the replay."""
    if not diagnosis.refine:
        return None
    count = len(diagnosis.refine)
    those = "this operation" if count == 1 else f"these {count} operations"
    return (
        f"profile --device {device} --refine {run} measures {those} again in the context in which"
        " they run; then solve again"
    )


def _within(step_s: Comparison) -> str:
    return (
        f"the step took {_time(step_s.measured)}, predicted were {_time(step_s.predicted)}: the"
        " intervals allow the difference"
    )


def _beyond(step_s: Comparison) -> str:
    longer = "longer" if step_s.excess > 0 else "shorter"
    relative = "" if step_s.difference is None else f" ({100 * abs(step_s.difference):.3g} %)"
    return (
        f"the step took {_time(step_s.measured)}, predicted were {_time(step_s.predicted)}:"
        f" {_seconds(abs(step_s.excess))}{relative} {longer}, more than the intervals allow"
    )


def _said(part: Part, total_s: float) -> str:
    excess_s = part.time_s.excess
    share = excess_s / total_s
    of_it = f" ({100 * share:.3g} % of it)" if 0 < share <= 1 else ""
    return (
        f"{_subject(part)}: {_time(part.time_s.measured)} instead of"
        f" {_time(part.time_s.predicted)}, {_seconds(abs(excess_s))}"
        f" {'longer' if excess_s > 0 else 'shorter'}{of_it}"
    )


def _subject(part: Part) -> str:
    if not part.labels:
        return part.name
    named = ", ".join(part.labels[:_NAMED_LABELS])
    more = len(part.labels) - _NAMED_LABELS
    return f"{part.name} ({named}{f' and {more} more' if more > 0 else ''})"


def _rest(found: Sequence[Part], left: float) -> Iterator[str]:
    if not found:
        yield (
            "no operation by itself is out by more than its interval allows: many small differences"
            " of one sign; profile the board again, in the state in which the replay ran"
        )
    elif abs(left) > 1.0 - MOST_OF_IT:
        yield "the rest is spread over parts that are each within their intervals"
    if any(part.source == "storage" for part in found):
        yield "transfers: profile the board's storage again"
    if any(part.source == "rate" for part in found):
        yield "published rates are no measurement of this board: profile it"


def _time(interval: Interval) -> str:
    if interval.low == interval.high:
        return _seconds(interval.median)
    return f"{_seconds(interval.median)} ({_seconds(interval.low)} to {_seconds(interval.high)})"


def _seconds(value: float) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value * 1e9:.4g} ns"

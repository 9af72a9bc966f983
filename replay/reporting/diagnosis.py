"""Diagnose why a replayed step took longer or shorter than predicted.

Names the costs that are wrong, and the time that no cost predicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from devices.profile import Interval
from devices.program import command_line
from devices.replay import Comparison, Diagnosis, Responsible

MOST_OF_IT = 0.8
"""Share of the difference that the named parts must explain."""

_NAMED_LABELS = 3

Source: TypeAlias = Literal["operation", "storage", "rate", "other"]


@dataclass(frozen=True)
class Part:
    """Part of a step's time with one cost or one reason.

    Attributes:
        what: the cost key, or the activity.
        name: the name in messages.
        labels: the schedule's ops or tensors in it.
        source: origin of the prediction: an operation's measured cost, the storage's, a published
            rate, or none.
        time_s: predicted and measured seconds.
    """

    what: str
    name: str
    labels: tuple[str, ...]
    source: Source
    time_s: Comparison


def diagnose(step_s: Comparison, parts: Sequence[Part], board_word: str) -> Diagnosis:
    """Find the parts that explain the difference between a measured and a predicted step.

    Parts whose intervals do not overlap are named, largest difference first, until the unexplained
    rest is small. A named part may have the opposite sign: it hides a share of the other parts'
    difference, and without its correction the next prediction would be further off.

    Args:
        step_s: predicted and measured seconds of the step.
        parts: all parts of the step; their times add up to the step's.
        board_word: heading of the board's figures, "measured" or "emulated".
    """
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
            _beyond(step_s, board_word),
            *(_sentence(part, total_s) for part in found),
            *_rest(found, left),
        ),
        refine=refine,
    )


def remedy(diagnosis: Diagnosis, device: str, run: str) -> str | None:
    """Advice for a better prediction; None where no operation is to be measured again.

    Args:
        diagnosis: the diagnosis of the replay.
        device: word for ``--device`` that names the board.
        run: file or directory of the replay.
    """
    if not diagnosis.refine:
        return None
    count = len(diagnosis.refine)
    those = "this operation" if count == 1 else f"these {count} operations"
    command = command_line("profile", "--device", device, "--refine", run)
    return f"{command} measures {those} again in the context in which they run; then solve again"


def _within(step_s: Comparison) -> str:
    return (
        f"the step took {_time(step_s.measured)}, predicted {_time(step_s.predicted)}: the"
        " intervals overlap"
    )


def _beyond(step_s: Comparison, board_word: str) -> str:
    longer = "longer" if step_s.excess > 0 else "shorter"
    relative = "" if step_s.difference is None else f" ({100 * abs(step_s.difference):.3g} %)"
    return (
        f"the step took {_seconds(abs(step_s.excess))}{relative} {longer} than predicted:"
        f" {board_word} {_time(step_s.measured)}, predicted {_time(step_s.predicted)}; the"
        " intervals do not overlap"
    )


def _sentence(part: Part, total_s: float) -> str:
    excess_s = part.time_s.excess
    share = excess_s / total_s
    of_all = f" ({100 * share:.3g} % of the difference)" if 0 < share <= 1 else ""
    return (
        f"{_subject(part)}: {_time(part.time_s.measured)} instead of"
        f" {_time(part.time_s.predicted)}, {_seconds(abs(excess_s))}"
        f" {'longer' if excess_s > 0 else 'shorter'}{of_all}"
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
            "every operation is within its interval: many small differences of one sign add up;"
            " profile the board again, in the state in which the replay ran"
        )
    elif abs(left) > 1.0 - MOST_OF_IT:
        yield "the rest of the difference is spread over parts that are within their intervals"
    if any(part.source == "storage" for part in found):
        yield "transfers differ: profile the board's storage again"
    if any(part.source == "rate" for part in found):
        yield "published rates were not measured on this board: profile it"


def _time(interval: Interval) -> str:
    if interval.is_exact:
        return _seconds(interval.median)
    return f"{_seconds(interval.median)} ({_seconds(interval.low)} to {_seconds(interval.high)})"


def _seconds(value: float) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value * 1e9:.4g} ns"

"""Split the time of a watched step into the schedule's actions and other activities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from devices.plan import (
    Action,
    Compute,
    ExecutionPlan,
    Move,
    PageIn,
    PageOut,
    Probe,
    RowsIn,
    Select,
)
from devices.replay import ExpectedAction, MeasuredStep, OtherActivity, Span


@dataclass(frozen=True)
class WatchedStep:
    """Times of a watched step, in seconds.

    ``time_s`` is running time, as of an unwatched step. ``spans`` are those of the schedule's
    actions, by their index, and ``other_s`` the time outside of them, by activity; both are elapsed
    time, as is ``elapsed_s``, the length of the step.
    """

    time_s: float
    elapsed_s: float
    spans: Mapping[int, Span]
    other_s: Mapping[OtherActivity, float]

    @property
    def training_share(self) -> float:
        """Share of the step that is training, not checksums.

        Both of its terms are elapsed time: a checksum that another program interrupts can last
        longer than the whole step runs.
        """
        elapsed_s = self.elapsed_s
        return max(0.0, 1.0 - self.other_s["probe"] / elapsed_s) if elapsed_s else 1.0

    @property
    def training_s(self) -> float:
        """Running time of the step without its checksums."""
        return self.time_s * self.training_share


@dataclass(frozen=True)
class ScheduledActions:
    """Index of the plan's action for each action of the schedule, by the schedule's index."""

    plan: ExecutionPlan
    of_schedule: Mapping[int, int]

    @classmethod
    def of(cls, plan: ExecutionPlan, expected: Sequence[ExpectedAction]) -> ScheduledActions:
        """Match a plan with its schedule. Raises :class:`ValueError` if they do not match."""
        found = {
            action.schedule_index: index
            for index, action in enumerate(plan.actions)
            if action.schedule_index is not None and _label(action) is not None
        }
        for action in expected:
            index = found.get(action.schedule_index)
            if index is None or _label(plan.actions[index]) != action.label:
                raise ValueError(
                    f"{plan.name}: the plan is of another schedule: action {action.schedule_index}"
                    f" of this schedule is {action.label}"
                )
        if len(found) != len(expected):
            raise ValueError(
                f"{plan.name}: the plan carries out {len(found)} actions of its schedule, but this"
                f" schedule has {len(expected)} actions that take time"
            )
        return cls(plan, found)

    @property
    def moves(self) -> int:
        return sum(isinstance(action.does, Move) for action in self.plan.actions)

    @property
    def waits(self) -> int:
        """Number of actions that wait for asynchronous transfers."""
        return sum(self.first_waits)

    def watched(self, step: MeasuredStep) -> WatchedStep:
        """Times of a measured step with spans; spans of actions after the step are left out."""
        actions, spans = self.plan.actions, step.spans[: len(self.plan.actions)]
        other: dict[OtherActivity, float] = dict.fromkeys(get_args(OtherActivity), 0.0)
        now_s = transfers_end_s = 0.0
        for action, span, waits in zip(actions, spans, self.first_waits, strict=True):
            end_s = span.start_s + span.time_s
            if is_asynchronous(action):
                transfers_end_s = max(transfers_end_s, end_s)
                continue
            other["wait" if waits else "between"] += max(0.0, span.start_s - now_s)
            now_s = max(now_s, end_s)
            if isinstance(action.does, Move):
                other["move"] += span.time_s
            elif isinstance(action.does, Probe):
                other["probe"] += span.time_s
            elif isinstance(action.does, Select):
                other["rows"] += span.time_s
        # A step ends when its last transfer has ended.
        waited_s = min(max(0.0, transfers_end_s - now_s), max(0.0, step.time_s - now_s))
        other["wait"] += waited_s
        other["between"] += max(0.0, step.time_s - now_s - waited_s)
        return WatchedStep(
            step.time_s,
            max(step.time_s, now_s, transfers_end_s),
            {scheduled: spans[index] for scheduled, index in self.of_schedule.items()},
            other,
        )

    @cached_property
    def first_waits(self) -> list[bool]:
        """For each action, whether it is the first to wait for an asynchronous transfer."""
        asynchronous: list[bool] = []  # for each transfer so far
        over = 0
        found = []
        for action in self.plan.actions:
            transfer = action.does if isinstance(action.does, PageIn | PageOut | RowsIn) else None
            alone = transfer is not None and not transfer.asynchronous
            waits_for = len(asynchronous) if alone else action.waits_for
            found.append(any(asynchronous[over:waits_for]))
            over = max(over, waits_for)
            if transfer is not None:
                asynchronous.append(transfer.asynchronous)
        return found


def _label(action: Action) -> str | None:
    """The label of its :class:`ExpectedAction`; None for other actions."""
    match action.does:
        case Compute():
            return action.does.op
        case PageIn() | PageOut() | RowsIn():
            return action.does.tensor
    return None


def is_asynchronous(action: Action) -> bool:
    return isinstance(action.does, PageIn | PageOut | RowsIn) and action.does.asynchronous

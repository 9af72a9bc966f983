"""Where the time of a watched step went: into actions of the schedule, or between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from devices.plan import Action, Compute, ExecutionPlan, Move, PageIn, PageOut, Probe
from devices.replay import ExpectedAction, MeasuredStep, OtherActivity, Span


@dataclass(frozen=True)
class WatchedStep:
    """``spans`` of the schedule's actions, by their index. ``other_s`` is time that belongs to
    none, by what it is. Seconds."""

    time_s: float
    spans: Mapping[int, Span]
    other_s: Mapping[OtherActivity, float]


@dataclass(frozen=True)
class ScheduledActions:
    """Which action of a plan (by its index) is which action of the schedule."""

    plan: ExecutionPlan
    of_schedule: Mapping[int, int]

    @classmethod
    def of(cls, plan: ExecutionPlan, expected: Sequence[ExpectedAction]) -> ScheduledActions:
        """Raises :class:`ValueError` for a plan of another schedule."""
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
                    f" of this one is {action.label}"
                )
        if len(found) != len(expected):
            raise ValueError(
                f"{plan.name}: the plan carries out {len(found)} actions of its schedule, this one"
                f" has {len(expected)} that take time"
            )
        return cls(plan, found)

    @property
    def moves(self) -> int:
        return sum(isinstance(action.does, Move) for action in self.plan.actions)

    @property
    def waits(self) -> int:
        """Actions that wait for transfers which run beside others."""
        return sum(self._waits)

    def watched(self, step: MeasuredStep) -> WatchedStep:
        """A measured step that has spans; those of what is done ``afterwards`` are left alone."""
        actions, spans = self.plan.actions, step.spans[: len(self.plan.actions)]
        other: dict[OtherActivity, float] = dict.fromkeys(("move", "probe", "wait", "between"), 0.0)
        now_s = transfers_end_s = 0.0
        for action, span, waits in zip(actions, spans, self._waits, strict=True):
            end_s = span.start_s + span.time_s
            if _is_beside(action):
                transfers_end_s = max(transfers_end_s, end_s)
                continue
            other["wait" if waits else "between"] += max(0.0, span.start_s - now_s)
            now_s = max(now_s, end_s)
            if isinstance(action.does, Move):
                other["move"] += span.time_s
            elif isinstance(action.does, Probe):
                other["probe"] += span.time_s
        # A step ends when its last transfer has.
        waited_s = min(max(0.0, transfers_end_s - now_s), max(0.0, step.time_s - now_s))
        other["wait"] += waited_s
        other["between"] += max(0.0, step.time_s - now_s - waited_s)
        return WatchedStep(
            step.time_s,
            {scheduled: spans[index] for scheduled, index in self.of_schedule.items()},
            other,
        )

    @cached_property
    def _waits(self) -> list[bool]:
        """Of each action, whether it is the first to wait for a transfer beside others."""
        beside: list[bool] = []  # of each transfer so far
        over = 0
        found = []
        for action in self.plan.actions:
            transfer = action.does if isinstance(action.does, PageIn | PageOut) else None
            alone = transfer is not None and not transfer.asynchronous
            waits_for = len(beside) if alone else action.waits_for
            found.append(any(beside[over:waits_for]))
            over = max(over, waits_for)
            if transfer is not None:
                beside.append(transfer.asynchronous)
        return found


def _label(action: Action) -> str | None:
    """As an :class:`ExpectedAction` has it; None for what is no action of a schedule."""
    match action.does:
        case Compute():
            return action.does.op
        case PageIn() | PageOut():
            return action.does.tensor
    return None


def _is_beside(action: Action) -> bool:
    return isinstance(action.does, PageIn | PageOut) and action.does.asynchronous

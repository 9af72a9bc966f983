"""Where the time of a watched step went: into steps of the schedule, or between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from devices.plan import Action, Compute, ExecutionPlan, Move, PageIn, PageOut, Probe
from devices.replay import ExpectedAction, MeasuredStep, OtherActivity, Span


@dataclass(frozen=True)
class WatchedStep:
    """``spans`` of the schedule's steps, by their number. ``other_s`` is time that belongs to none,
    by what it is. Seconds."""

    time_s: float
    spans: Mapping[int, Span]
    other_s: Mapping[OtherActivity, float]


@dataclass(frozen=True)
class ScheduledActions:
    """Which actions of a plan are which steps of the schedule."""

    plan: ExecutionPlan
    of_step: Mapping[int, tuple[int, ...]]

    @classmethod
    def of(cls, plan: ExecutionPlan, expected: Sequence[ExpectedAction]) -> ScheduledActions:
        """Raises :class:`ValueError` for a plan of another schedule."""
        found: dict[int, list[int]] = {}
        for index, action in enumerate(plan.actions):
            if action.step is not None and _is_scheduled(action):
                found.setdefault(action.step, []).append(index)
        missing = [action.label for action in expected if action.step not in found]
        if missing or len(found) != len(expected):
            raise ValueError(
                f"{plan.name}: the plan carries out {len(found)} steps that take time, the schedule"
                f" has {len(expected)}" + (f", among them {missing[0]}" if missing else "")
            )
        return cls(plan, {step: tuple(indices) for step, indices in found.items()})

    @property
    def moves(self) -> int:
        return sum(isinstance(action.does, Move) for action in self.plan.actions)

    @property
    def waits(self) -> int:
        """Actions that wait for transfers which run beside others."""
        return sum(self._waits)

    def watched(self, step: MeasuredStep) -> WatchedStep:
        """A measured step that has spans."""
        actions, spans = self.plan.actions, step.spans
        other: dict[OtherActivity, float] = dict.fromkeys(("move", "probe", "wait", "between"), 0.0)
        now_s = 0.0
        for action, span, waits in zip(actions, spans, self._waits, strict=False):
            if _is_beside(action):
                continue
            other["wait" if waits else "between"] += max(0.0, span.start_s - now_s)
            now_s = max(now_s, span.start_s + span.time_s)
            if isinstance(action.does, Move):
                other["move"] += span.time_s
            elif isinstance(action.does, Probe):
                other["probe"] += span.time_s
        beside = [s for a, s in zip(actions, spans, strict=False) if _is_beside(a)]
        transfers_end_s = max((span.start_s + span.time_s for span in beside), default=0.0)
        waited_s = min(max(0.0, transfers_end_s - now_s), max(0.0, step.time_s - now_s))
        other["wait"] += waited_s
        other["between"] += max(0.0, step.time_s - now_s - waited_s)
        return WatchedStep(
            step.time_s,
            {number: _joined(spans, indices) for number, indices in self.of_step.items()},
            other,
        )

    @cached_property
    def _waits(self) -> list[bool]:
        """Of each action, whether it is the first to wait for a transfer beside others."""
        beside = [
            _is_beside(action)
            for action in self.plan.actions
            if isinstance(action.does, PageIn | PageOut)
        ]
        reached = [0]
        for action in self.plan.actions:
            reached.append(max(reached[-1], action.waits_for))
        return [any(beside[before:now]) for before, now in pairwise(reached)]


def _is_scheduled(action: Action) -> bool:
    return isinstance(action.does, Compute | PageIn | PageOut)


def _is_beside(action: Action) -> bool:
    return isinstance(action.does, PageIn | PageOut) and action.does.asynchronous


def _joined(spans: Sequence[Span], indices: Sequence[int]) -> Span:
    parts = [spans[index] for index in indices]
    return Span(min(part.start_s for part in parts), math.fsum(part.time_s for part in parts))

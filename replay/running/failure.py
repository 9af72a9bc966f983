"""Errors of steps that failed on a board."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devices.errors import MeasurementInvalid
from devices.plan import (
    Check,
    Compute,
    ExecutionPlan,
    Move,
    PageIn,
    PageOut,
    Probe,
    RowsIn,
    RowsOut,
    Select,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from replay.running.measured import ReplayRecord


# Messages from profiler/boards: the Linux harness ends with JW_EXIT_STEP and the line's number,
# firmware refuses the line.
_LINUX = re.compile(r"the harness ended with code 7: .*?line (\d+): (.*)", re.DOTALL)
# Codes with which the Linux harness ends before it trains, or between two steps, such as
# JW_EXIT_STORAGE.
_BEFORE_TRAINING = re.compile(r"the harness ended with code [2-5]:")
_FIRMWARE = re.compile(r"the firmware refuses '(\w+)[^']*': (.*)", re.DOTALL)
_ACTION = re.compile(r"action (\d+): (.*)", re.DOTALL)


@dataclass(frozen=True)
class Trained:
    """Values after step number ``step`` (0: the initial values), flat, by tensor."""

    step: int
    values: Mapping[str, NDArray[np.float32]]


class ReplayFailed(MeasurementInvalid):
    """A step failed before its end, or all of them were disturbed.

    Attributes:
        record: the steps before it.
        recovered: the values of the last complete step; None where they could not be read: a step
            that failed has left them in storage only, if its plan pages.
    """

    def __init__(
        self,
        message: str,
        record: ReplayRecord,
        recovered: Trained | None,
        *,
        operation: str | None = None,
    ) -> None:
        super().__init__(message, operation=operation)
        self.record = record
        self.recovered = recovered


@dataclass(frozen=True)
class FailedLine:
    """First word of the replay's line that failed, and the board's message about it."""

    word: str
    sentence: str


def may_have_trained(message: str) -> bool:
    """Whether a program that ended with this message may have completed a step that it has not
    recorded."""
    return _BEFORE_TRAINING.search(message) is None


def find_failed_line(plan: ExecutionPlan, script: str, message: str) -> FailedLine | None:
    """Parse a board's error message; None for errors that no line of the replay caused."""
    linux, firmware = _LINUX.search(message), _FIRMWARE.search(message)
    if linux is not None:
        lines = script.splitlines()
        word, sentence = lines[int(linux[1]) - 1].partition(" ")[0], linux[2]
    elif firmware is not None:
        word, sentence = firmware[1], firmware[2]
    else:
        return None
    action = _ACTION.match(sentence)
    if action is not None:
        sentence = f"{describe_action(plan, int(action[1]))}: {action[2]}"
    return FailedLine(word, sentence)


def describe_action(plan: ExecutionPlan, number: int) -> str:
    """Describe an action of a plan by its index, including the actions after the step."""
    actions = (*plan.actions, *plan.afterwards)
    match actions[number].does:
        case Compute(op=op):
            return f"operation {op}"
        case PageOut(tensor=tensor):
            return f"page-out of {tensor}"
        case Select():
            return "selection of rows"
        case RowsOut(tensor=tensor):
            return f"copy of rows of {tensor}"
        case PageIn(tensor=tensor) | RowsIn(tensor=tensor):
            return f"page-in of {tensor}"
        case Move(tensor=tensor):
            return f"move of {tensor}"
        case Check(tensor=tensor):
            return f"guard after {tensor}, checked after {_last_operation(plan, number)}"
        case Probe(tensor=tensor):
            return f"checksum of {tensor}"
        case _:
            return "guard"


def _last_operation(plan: ExecutionPlan, number: int) -> str:
    for action in reversed((*plan.actions, *plan.afterwards)[:number]):
        if isinstance(action.does, Compute):
            return f"operation {action.does.op}"
    return "the start of the step"

"""What is said of a step that went wrong on a board."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devices.errors import MeasurementInvalid
from devices.plan import Check, Compute, ExecutionPlan, Move, PageIn, PageOut, Probe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from replay.running.measured import ReplayRecord


# What the boards say, see profiler/boards: the harness ends with JW_EXIT_STEP and the number of the
# line, firmware refuses the line.
_LINUX = re.compile(r"the harness ended with code 7: .*?line (\d+): (.*)", re.DOTALL)
_FIRMWARE = re.compile(r"the firmware refuses '(\w+)[^']*': (.*)", re.DOTALL)
_ACTION = re.compile(r"action (\d+): (.*)", re.DOTALL)


@dataclass(frozen=True)
class Recovered:
    """What step number ``step`` (0: the initial values) has left, by tensor."""

    step: int
    values: Mapping[str, NDArray[np.float32]]


class ReplayFailed(MeasurementInvalid):
    """A step ended in the middle. ``record`` holds the steps before it, ``recovered`` what the last
    complete one has left in storage; None where nothing is kept there, or could not be read."""

    def __init__(
        self,
        message: str,
        record: ReplayRecord,
        recovered: Recovered | None,
        *,
        operation: str | None = None,
    ) -> None:
        super().__init__(message, operation=operation)
        self.record = record
        self.recovered = recovered


@dataclass(frozen=True)
class Blame:
    """Which line of a replay went wrong, by its first word, and what the board says about it."""

    word: str
    sentence: str


def blamed(plan: ExecutionPlan, script: str, message: str) -> Blame | None:
    """What a board's error says of a replay; None for errors that are about something else."""
    linux, firmware = _LINUX.search(message), _FIRMWARE.search(message)
    if linux is not None:
        lines = script.splitlines()
        word, said = lines[int(linux[1]) - 1].partition(" ")[0], linux[2]
    elif firmware is not None:
        word, said = firmware[1], firmware[2]
    else:
        return None
    action = _ACTION.match(said)
    if action is not None:
        said = f"{describe_action(plan, int(action[1]))}: {action[2]}"
    return Blame(word, said)


def describe_action(plan: ExecutionPlan, number: int) -> str:
    """Of a plan's actions, those behind the step included, in words."""
    actions = (*plan.actions, *plan.afterwards)
    match actions[number].does:
        case Compute(op=op):
            return f"operation {op}"
        case PageOut(tensor=tensor):
            return f"page-out of {tensor}"
        case PageIn(tensor=tensor):
            return f"page-in of {tensor}"
        case Move(tensor=tensor):
            return f"move of {tensor}"
        case Check(tensor=tensor):
            return f"check behind {tensor}, after {_last_operation(plan, number)}"
        case Probe(tensor=tensor):
            return f"checksum of {tensor}"
        case _:
            return "guard"


def _last_operation(plan: ExecutionPlan, number: int) -> str:
    for action in reversed((*plan.actions, *plan.afterwards)[:number]):
        if isinstance(action.does, Compute):
            return f"operation {action.does.op}"
    return "the begin of the step"

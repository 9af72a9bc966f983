"""Overhead of the executor: steps that consist of the smallest operation."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.pages import Page, Table
from benchmarks.replay.cases import Progress
from devices.description import DeviceDescription
from devices.documents.readable import si
from devices.operation import OpSpec
from devices.plan import Action, Compute, ExecutionPlan
from replay.running.opening import open_replay

_OPERATIONS = 10_000
_SPEC = OpSpec.of("relu.forward", elements=1)

_TEXT = """
A step of {operations:,} operations `{spec}` on `{device}`, {steps} times. The time of an operation
includes the executor, so it is an upper bound of the executor's own time. In a watched step the
executor records the time of every action.
"""


@dataclass(frozen=True)
class Row:
    """Time of one operation, with or without a record of every action."""

    watched: bool
    operation_s: float

    @property
    def cells(self) -> tuple[str, str]:
        return "watched" if self.watched else "not watched", si(self.operation_s, "s")


def overhead_page(
    description: DeviceDescription, steps: int, versions: Sequence[str], progress: Progress
) -> Page:
    rows = [row.cells for row in _rows(description, steps, progress)]
    text = _TEXT.format(
        operations=_OPERATIONS, spec=_SPEC.key, device=description.name, steps=steps
    )
    table = Table(("step", "time of an operation"), rows)
    return Page("Overhead of the executor", text, [table], versions)


def _rows(description: DeviceDescription, steps: int, progress: Progress) -> Iterator[Row]:
    def plans(_workspace_bytes: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
        actions = tuple(
            Action(Compute(f"op{i}", _SPEC, (0,), (64,), None, {})) for i in range(_OPERATIONS)
        )
        return [ExecutionPlan("overhead", 128, {}, (), actions)]

    with open_replay(description, [_SPEC], plans, progress) as session:
        for watched in (False, True):
            record = session.run(0, {}, [{}], steps=steps, watched=watched, expected_step_s=1e-3)
            step_s = statistics.median(step.time_s for step in record.sound_steps)
            yield Row(watched, step_s / _OPERATIONS)

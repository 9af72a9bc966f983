"""What the executor takes of its own: a step of nothing but the smallest operation."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

from benchmarks.replay.cases import Progress
from devices.description import DeviceDescription
from devices.documents.readable import si
from devices.operation import OpSpec
from devices.plan import Action, Compute, ExecutionPlan
from replay.running.opening import open_replay

_OPERATIONS = 10_000
_SPEC = OpSpec.of("relu.forward", elements=1)


def overhead(description: DeviceDescription, steps: int, progress: Progress) -> Iterator[str]:
    """Lines of Markdown. The operation's own time is in it: an upper bound."""

    def plans(_workspace_bytes: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
        actions = tuple(
            Action(Compute(f"op{i}", _SPEC, (0,), (64,), None, {})) for i in range(_OPERATIONS)
        )
        return [ExecutionPlan("overhead", 128, {}, (), actions)]

    with open_replay(description, [_SPEC], plans, progress) as session:
        for watched in (False, True):
            record = session.run(0, {}, [{}], steps=steps, watched=watched, expected_step_s=1e-3)
            step_s = statistics.median(step.time_s for step in record.sound_steps)
            how = "watched" if watched else "not watched"
            yield f"{how}: {si(step_s / _OPERATIONS, 's')} an operation, a {_SPEC} each"

"""Plans that count the sizes that tensors would have if they were packed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from devices.plan import Action, ArenaRange, Compute, ExecutionPlan, Probe
from networks.training.step import StepTensor, TrainingStep


def counting(
    plan: ExecutionPlan, step: TrainingStep, tensors: Sequence[StepTensor], page_bytes: int
) -> ExecutionPlan:
    """A plan that also counts the packed words of tensors, when they are first written.

    Args:
        plan: A plan of the step.
        step: The step.
        tensors: The tensors.
        page_bytes: Size of a page of the storage to which they would be paged.
    """
    written = {op.name: op.writes for op in step.ops}
    waiting = {tensor.name: tensor for tensor in tensors}

    def actions() -> Iterator[Action]:
        for action in plan.actions:
            yield action
            if not isinstance(action.does, Compute):
                continue
            for name, address in zip(written[action.does.op], action.does.writes, strict=True):
                tensor = waiting.pop(name, None)
                if tensor is not None:
                    probe = Probe(name, "zeros", ArenaRange(address, tensor.bytes))
                    yield Action(probe, action.waits_for)

    return replace(plan, actions=tuple(actions()), counted_page_bytes=page_bytes)

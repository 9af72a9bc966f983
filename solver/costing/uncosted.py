"""The scheduling problem of a training step without costs."""

from __future__ import annotations

from networks.training.step import TrainingStep
from solver.problem.graph import CostedGraph, Op, PageCost, Tensor


def uncosted_graph(step: TrainingStep) -> CostedGraph:
    """Build the scheduling problem of a training step with every cost zero.

    Only tensors that must be paged can be paged: those whose home is storage, or that must persist
    there.

    Args:
        step: The training step of a network.

    Returns:
        The graph, with workspace 0 as well.
    """
    free_of_cost = PageCost(time_s=0.0, energy_j=0.0)
    return CostedGraph(
        name=step.title,
        ops=tuple(
            Op(
                name=op.name,
                kind=op.spec.kind,
                phase=op.phase,
                reads=op.reads,
                writes=op.writes,
                time_s=0.0,
                energy_j=0.0,
                recomputable=op.recomputable,
                in_place=op.in_place,
            )
            for op in step.ops
        ),
        tensors=tuple(
            Tensor(
                name=tensor.name,
                bytes=tensor.bytes,
                kind=tensor.kind,
                home=tensor.home,
                persist=tensor.persist,
                page_out=free_of_cost if tensor.persist == "storage" else None,
                page_in=free_of_cost if tensor.home == "storage" else None,
            )
            for tensor in step.tensors
        ),
    )

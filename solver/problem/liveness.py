"""Liveness: free each tensor right after the last action that needs it."""

from __future__ import annotations

from collections.abc import Sequence

from solver.problem.graph import CostedGraph
from solver.problem.schedule import Action, Compute, Free, PageIn, PageOut


def with_frees(graph: CostedGraph, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Add every ``free`` action to ``actions`` (computing and paging, in order).

    A tensor is freed right after the last action that needs it before it is recomputed, paged in
    again, or the step ends.
    """
    needed = {tensor.name for tensor in graph.tensors if tensor.persist == "ram"}
    ops = {op.name: op for op in graph.ops}
    freed_after: list[list[str]] = []
    for action in reversed(actions):
        freed: list[str] = []
        match action:
            case Compute():
                op = ops[action.op]
                consumed = set(op.in_place.values())
                freed += [name for name in op.writes if name not in needed]
                freed += [
                    name
                    for name in dict.fromkeys(op.reads)
                    if name not in needed and name not in consumed
                ]
                needed.difference_update(op.writes)
                needed.update(op.reads)
            case PageOut():
                if action.tensor not in needed:
                    freed.append(action.tensor)
                needed.add(action.tensor)
            case PageIn():
                if action.tensor not in needed:
                    freed.append(action.tensor)
                needed.discard(action.tensor)
            case Free():
                raise ValueError("actions already contain a free action")
        freed_after.append(freed)
    written = {name for op in graph.ops for name in op.writes}
    result: list[Action] = [
        Free(tensor=tensor.name)
        for tensor in graph.tensors
        if tensor.name not in written and tensor.home != "storage" and tensor.name not in needed
    ]
    for action, freed in zip(actions, reversed(freed_after), strict=True):
        result.append(action)
        result += [Free(tensor=name) for name in freed]
    return tuple(result)

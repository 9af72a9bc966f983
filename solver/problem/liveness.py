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


def with_late_frees(
    graph: CostedGraph, actions: Sequence[Action], path: Sequence[Action]
) -> tuple[Action, ...]:
    """Move frees of tensors that are being paged out beside ops to where they are in ``path``.

    But for frees, ``path`` has the same actions. A free that it does not have goes to the end.
    """
    late: dict[tuple[str, int], int] = {}
    position, residency = 0, dict[str, int]()
    for action in path:
        if isinstance(action, Free):
            late[action.tensor, residency.get(action.tensor, 0)] = position
            residency[action.tensor] = residency.get(action.tensor, 0) + 1
        else:
            position += 1
    kept: list[list[Action]] = [[] for _ in range(position + 1)]
    position, residency, leaving = 0, {}, set[str]()
    overwritten = {op.name: op.in_place.values() for op in graph.ops}
    plain: list[Action] = []
    for action in actions:
        if not isinstance(action, Free):
            plain.append(action)
            position += 1
            if isinstance(action, PageOut) and action.asynchronous:
                leaving.add(action.tensor)
            if isinstance(action, Compute):
                leaving.difference_update(overwritten[action.op])
            continue
        name = action.tensor
        here = (name, residency.get(name, 0))
        residency[name] = here[1] + 1
        kept[late.get(here, len(kept) - 1) if name in leaving else position].append(action)
        leaving.discard(name)
    result: list[Action] = list(kept[0])
    for number, action in enumerate(plain, start=1):
        result += [action, *kept[number]]
    return tuple(result)

"""Schedules that need no search."""

from __future__ import annotations

from collections.abc import Iterable

from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut


def keep_everything(graph: CostedGraph) -> tuple[Action, ...]:
    """Every op once, in the graph's order; a tensor is freed after its last reader. Its peak is the
    *unconstrained peak*. Paged is only what lives in storage, or must be there in the end."""
    at_hand = {t.name for t in graph.tensors if t.home != "storage"}
    actions: list[Action] = []

    def bring(names: Iterable[str]) -> None:
        for name in names:
            if name not in at_hand:
                at_hand.add(name)
                actions.append(PageIn(tensor=name))

    def save(names: Iterable[str]) -> None:
        actions.extend(
            PageOut(tensor=name)
            for name in names
            if graph.tensor[name].persist == "storage" and graph.tensor[name].home != "storage"
        )

    save(t.name for t in graph.tensors if t.name not in graph.producer)
    for op in graph.ops:
        bring(op.reads)
        actions.append(Compute(op=op.name))
        save(op.writes)
    bring(t.name for t in graph.tensors if t.persist == "ram")
    return with_frees(graph, actions)


def page_everything(problem: Problem) -> tuple[Action, ...]:
    """Every op once, in order; whatever the next op does not read goes to storage, and comes back
    right before it is read. No schedule without recomputation needs less RAM; few cost more."""
    tensors = problem.graph.tensors
    resident = {i for i, starts in enumerate(problem.starts_in_ram) if starts}
    stored = {i for i, starts in enumerate(problem.starts_in_storage) if starts}
    actions: list[Action] = []

    def has_further_use(i: int, after: int) -> bool:
        if tensors[i].persist == "ram" or any(j > after for j in problem.readers[i]):
            return True
        return tensors[i].persist == "storage" and i not in stored

    def put_away(after: int, keep: set[int]) -> None:
        for i in sorted(resident - keep):
            if not has_further_use(i, after):
                resident.discard(i)
            elif problem.can_page_in[i]:
                if i not in stored and problem.can_page_out[i]:
                    actions.append(PageOut(tensor=tensors[i].name))
                    stored.add(i)
                resident.discard(i)

    def bring(i: int) -> None:
        if i not in resident:
            actions.append(PageIn(tensor=tensors[i].name))
            resident.add(i)

    for k, op in enumerate(problem.graph.ops):
        put_away(k - 1, set(problem.reads[k]))
        for i in problem.reads[k]:
            bring(i)
        actions.append(Compute(op=op.name))
        resident.update(problem.writes[k])
        resident.difference_update(problem.consumes[k])
        for i in problem.writes[k]:
            if tensors[i].persist == "storage":
                actions.append(PageOut(tensor=tensors[i].name))
                stored.add(i)
    for i, tensor in enumerate(tensors):
        if tensor.persist == "ram":
            bring(i)
        if tensor.persist == "storage" and i not in stored:
            bring(i)
            actions.append(PageOut(tensor=tensor.name))
    return with_frees(problem.graph, actions)

"""Schedules that need no search: keep everything, or page everything."""

from __future__ import annotations

from collections.abc import Iterable

from solver.problem.graph import CostedGraph
from solver.problem.kept import kept
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut

# Most schedules kept: a solve asks for that of the same graph several times.
_MOST_KEPT = 4


@kept(_MOST_KEPT)
def keep_everything(graph: CostedGraph) -> tuple[Action, ...]:
    """Build the schedule that recomputes and pages nothing by choice.

    It computes every op once, in the graph's order, and frees each tensor after its last reader. It
    pages only tensors whose home is storage or that must persist there. Its peak is the
    *unconstrained peak*.

    Args:
        graph: The costed graph.

    Returns:
        The actions, ``free`` actions included.
    """
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
    """Build the schedule that pages every tensor out between its uses.

    It computes every op once, in order. What must persist in storage is paged out as soon as it is
    there. Tensors that the next op does not read are paged out, and paged in right before they are
    read; those that cannot be paged in are held until they are read for the last time. In this
    order, no schedule without recomputation needs less RAM.
    """
    tensors = problem.graph.tensors
    resident = {i for i, starts in enumerate(problem.starts_in_ram) if starts}
    stored = {i for i, starts in enumerate(problem.starts_in_storage) if starts}
    # Those of them that an op has touched since it was decided to leave them in RAM.
    undecided = set(resident)
    actions: list[Action] = []

    def has_further_use(i: int, after: int) -> bool:
        readers = problem.readers[i]
        return tensors[i].persist == "ram" or bool(readers and readers[-1] > after)

    def put_away(after: int, keep: set[int]) -> None:
        for i in sorted(undecided - keep):
            undecided.discard(i)
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

    def save(indices: Iterable[int]) -> None:
        for i in indices:
            if problem.must_page_out[i]:
                actions.append(PageOut(tensor=tensors[i].name))
                stored.add(i)

    save(sorted(resident))
    for k, op in enumerate(problem.graph.ops):
        put_away(k - 1, set(problem.reads[k]))
        for i in problem.reads[k]:
            bring(i)
        actions.append(Compute(op=op.name))
        resident.update(problem.writes[k])
        undecided.update(problem.reads[k], problem.writes[k])
        resident.difference_update(problem.consumes[k])
        undecided.difference_update(problem.consumes[k])
        save(problem.writes[k])
    for i, tensor in enumerate(tensors):
        if tensor.persist == "ram":
            bring(i)
    return with_frees(problem.graph, actions)

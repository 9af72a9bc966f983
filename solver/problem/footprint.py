"""Bytes that count against the RAM budget, and the least RAM that any schedule needs."""

from __future__ import annotations

from collections.abc import Mapping

from solver.options import Coverage
from solver.problem.graph import CostedGraph, Op

_SUM = "gradient.accumulate"
"""Kind of the ops that add two gradients of one tensor."""


def uncounted_tensors(graph: CostedGraph, covers: Coverage) -> frozenset[str]:
    """Names of the tensors that do not count against the budget.

    With ``activations``, as in POET, these are the parameters, their gradients (gradients that an
    update reads, and those of which such a gradient is the sum) and the optimizer state.
    """
    if covers == "all":
        return frozenset()
    of_parameters = {name for op in graph.ops if op.phase == "update" for name in op.reads}
    written_by_updates = {name for op in graph.ops if op.phase == "update" for name in op.writes}
    for op in reversed(graph.ops):
        if op.kind == _SUM and not of_parameters.isdisjoint(op.writes):
            of_parameters.update(op.reads)
    return frozenset(
        tensor.name
        for tensor in graph.tensors
        if tensor.kind in {"parameter", "optimizer_state"}
        or (tensor.kind == "gradient" and tensor.name in of_parameters)
        or tensor.name in written_by_updates
    )


def extra_bytes(op: Op, size: Mapping[str, int]) -> int:
    """Bytes that ``op`` takes beyond the tensors that it reads and writes.

    This is its workspace, minus the bytes that tensors written in place share with the tensors that
    they replace. ``size`` is in bytes by tensor.
    """
    shared = sum(min(size[written], size[read]) for written, read in op.in_place.items())
    return op.workspace_bytes - shared


def footprint_bytes(op: Op, size: Mapping[str, int]) -> int:
    """Bytes that ``op`` takes by itself, for tensors of ``size`` (bytes by tensor)."""
    return sum(size[name] for name in {*op.reads, *op.writes}) + extra_bytes(op, size)


def least_ram_bytes(graph: CostedGraph, covers: Coverage = "all") -> tuple[int, str]:
    """Lower bound on the RAM of every schedule.

    It is the maximum of what each op takes by itself (reads, writes, workspace), of the tensors in
    RAM when the step begins, and of those that must be in RAM when it ends.

    Args:
        graph: The costed graph.
        covers: Tensors that count.

    Returns:
        The bound in bytes, and the name of the op that sets it, or a phrase for the other two.
    """
    uncounted = uncounted_tensors(graph, covers)
    size = {t.name: 0 if t.name in uncounted else t.bytes for t in graph.tensors}

    needs = [(footprint_bytes(op, size), op.name) for op in graph.ops]
    begin = [t for t in graph.tensors if t.name not in graph.producer and t.home != "storage"]
    end = [t for t in graph.tensors if t.persist == "ram"]
    needs.append((sum(size[t.name] for t in begin), "what is in RAM when the step begins"))
    needs.append((sum(size[t.name] for t in end), "what must be in RAM when the step ends"))
    return max(needs, key=lambda need: need[0])

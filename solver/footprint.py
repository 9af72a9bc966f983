"""What counts against the RAM budget, and the two figures that frame every budget: the peak of a
step with nothing recomputed or paged, and the least that any single operation needs."""

from __future__ import annotations

from solver.graph import CostedGraph
from solver.liveness import with_frees
from solver.schedule import Compute, Coverage, Step


def uncounted_tensors(graph: CostedGraph, covers: Coverage) -> frozenset[str]:
    """Tensors that the budget leaves out: with ``activations``, as POET counts, the parameters,
    their gradients (gradients that an update reads) and the optimizer state."""
    if covers == "all":
        return frozenset()
    read_by_updates = {name for op in graph.ops if op.phase == "update" for name in op.reads}
    written_by_updates = {name for op in graph.ops if op.phase == "update" for name in op.writes}
    return frozenset(
        tensor.name
        for tensor in graph.tensors
        if tensor.kind in {"parameter", "optimizer_state"}
        or (tensor.kind == "gradient" and tensor.name in read_by_updates)
        or tensor.name in written_by_updates
    )


def keep_everything(graph: CostedGraph) -> tuple[Step, ...]:
    """Every op once, in the graph's order; a tensor is freed after its last reader."""
    return with_frees(graph, [Compute(op=op.name) for op in graph.ops])


def floor_bytes(graph: CostedGraph, covers: Coverage = "all") -> tuple[int, str]:
    """The most that a single op needs by itself (reads, writes, workspace), and that op's name: no
    schedule needs less."""
    uncounted = uncounted_tensors(graph, covers)
    size = {t.name: 0 if t.name in uncounted else t.bytes for t in graph.tensors}

    def footprint(index: int) -> int:
        op = graph.ops[index]
        shared = sum(min(size[written], size[read]) for written, read in op.in_place.items())
        return sum(size[name] for name in {*op.reads, *op.writes}) - shared + op.workspace_bytes

    worst = max(range(len(graph.ops)), key=footprint)
    return footprint(worst), graph.ops[worst].name

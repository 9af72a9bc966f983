"""Residencies: what takes bytes of the arena, from which action to which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from solver.options import Coverage
from solver.problem.footprint import uncounted_tensors
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Action, Compute, Free, PageIn


@dataclass(frozen=True)
class Residency:
    """Bytes in RAM from action ``first`` up to, but not including, action ``end``.

    ``first`` is -1 for a tensor in RAM before the first action. ``tensor`` None stands for the
    workspace of the op that action ``first`` computes.
    """

    tensor: str | None
    first: int
    end: int
    bytes: int


@dataclass(frozen=True)
class ResidencyChain:
    """Residencies at one offset, each written in place of the previous one.

    During the last action of the previous one both are in RAM, and the larger counts.
    """

    residencies: tuple[Residency, ...]

    @property
    def first(self) -> int:
        return self.residencies[0].first

    @property
    def end(self) -> int:
        return self.residencies[-1].end

    @property
    def bytes(self) -> int:
        """Most bytes that the chain takes at any time."""
        return max(residency.bytes for residency in self.residencies)


def blocks_of(
    graph: CostedGraph, actions: Sequence[Action], covers: Coverage
) -> tuple[ResidencyChain, ...]:
    """Blocks of a valid schedule, in the order in which they begin.

    Tensors that ``covers`` excludes and those without bytes are in no block.
    """
    uncounted = uncounted_tensors(graph, covers)
    size = {t.name: 0 if t.name in uncounted else t.bytes for t in graph.tensors}
    ops = {op.name: op for op in graph.ops}
    open_chains: dict[str, list[Residency]] = {}  # by tensor in RAM; the end is not known yet
    chains: list[list[Residency]] = []

    def begin(name: str | None, action: int, size_bytes: int) -> list[Residency]:
        chain = [Residency(name, action, action + 1, size_bytes)]
        if size_bytes:
            chains.append(chain)
        return chain

    def finish(name: str, end: int) -> list[Residency]:
        chain = open_chains.pop(name)
        last = chain[-1]
        chain[-1] = Residency(last.tensor, last.first, end, last.bytes)
        return chain

    for tensor in graph.tensors:
        if tensor.name not in graph.producer and tensor.home != "storage":
            open_chains[tensor.name] = begin(tensor.name, -1, size[tensor.name])
    for index, action in enumerate(actions):
        match action:
            case Compute():
                op = ops[action.op]
                for written in op.writes:
                    read = op.in_place.get(written)
                    if read is None or not min(size[written], size[read]):
                        open_chains[written] = begin(written, index, size[written])
                if op.workspace_bytes:
                    begin(None, index, op.workspace_bytes)
                for written, read in op.in_place.items():
                    chain = finish(read, index + 1)
                    if min(size[written], size[read]):
                        chain.append(Residency(written, index, index + 1, size[written]))
                        open_chains[written] = chain
            case PageIn():
                open_chains[action.tensor] = begin(action.tensor, index, size[action.tensor])
            case Free():
                finish(action.tensor, index)
    for name in tuple(open_chains):
        finish(name, len(actions))
    return tuple(ResidencyChain(tuple(chain)) for chain in chains)


@dataclass(frozen=True)
class Span:
    """Bytes of a block over a range of moments.

    A moment is an action that brings something into RAM, or the beginning of the step.
    """

    start: int
    end: int
    bytes: int


def spans_of(blocks: Sequence[ResidencyChain]) -> list[tuple[Span, ...]]:
    """Spans of each block, without gaps or overlaps, over the fewest moments that suffice."""
    made = sorted({residency.first for block in blocks for residency in block.residencies})
    moment = {action: index for index, action in enumerate(made)}
    after = {}  # first moment at or after each action
    index = len(made)
    for action in range(max((block.end for block in blocks), default=0), -2, -1):
        index = moment.get(action, index)
        after[action] = index

    def spans(block: ResidencyChain) -> tuple[Span, ...]:
        heights = [
            (after[residency.first], after[residency.end], residency.bytes)
            for residency in block.residencies
        ]
        edges = sorted({edge for start, end, _ in heights for edge in (start, end)})
        found: list[Span] = []
        for start, end in pairwise(edges):
            height = max(h for s, e, h in heights if s < end and start < e)
            if found and found[-1].bytes == height:
                found[-1] = Span(found[-1].start, end, height)
            else:
                found.append(Span(start, end, height))
        return tuple(found)

    return [spans(block) for block in blocks]

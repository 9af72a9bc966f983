"""Residency of tensors in the stages of a schedule, and spans of its phases.

A stage ends with the first execution of an op (as in Checkmate, Jain et al., MLSys 2020); actions
before it since the previous stage belong to it. Actions after the last first execution belong to
the last stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from solver.problem.graph import CostedGraph, Op
from solver.problem.schedule import Compute, Free, PageIn, PageOut, Schedule


@dataclass
class Events:
    """Tensors that a stage recomputes or pages."""

    recomputed: set[str] = field(default_factory=set)
    paged_out: set[str] = field(default_factory=set)
    paged_in: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Stage:
    """A stage, which ends with the first execution of ``op``.

    ``resident`` tensors are in RAM during ``op``; ``stored`` tensors have a valid copy in storage.
    """

    op: Op
    resident: frozenset[str]
    stored: frozenset[str]
    events: Events


def stages(graph: CostedGraph, schedule: Schedule) -> list[Stage]:
    """Stages of a valid schedule, in order."""
    ops = {op.name: op for op in graph.ops}
    sources = [tensor for tensor in graph.tensors if tensor.name not in graph.producer]
    ram = {tensor.name for tensor in sources if tensor.home != "storage"}
    stored = {tensor.name for tensor in sources if tensor.home == "storage"}
    done: set[str] = set()
    events = Events()
    found: list[Stage] = []
    for action in schedule.actions:
        match action:
            case PageOut():
                stored.add(action.tensor)
                events.paged_out.add(action.tensor)
            case PageIn():
                ram.add(action.tensor)
                events.paged_in.add(action.tensor)
            case Free():
                ram.discard(action.tensor)
            case Compute():
                op = ops[action.op]
                ram.update(op.writes)
                if action.op in done:
                    events.recomputed.update(op.writes)
                else:
                    done.add(action.op)
                    found.append(Stage(op, frozenset(ram), frozenset(stored), events))
                    events = Events()
                ram.difference_update(op.in_place.values())
    last = found[-1].events
    found[-1] = replace(
        found[-1],
        stored=frozenset(stored),
        events=Events(
            last.recomputed | events.recomputed,
            last.paged_out | events.paged_out,
            last.paged_in | events.paged_in,
        ),
    )
    return found


def phase_spans(phases: Sequence[str]) -> list[tuple[str, int, int]]:
    """First index and end of the forward, backward and update phase among first executions.

    ``phases`` are those of the ops in the order of first execution. Updates before the last op of
    another phase belong to the phase that surrounds them.
    """
    count = len(phases)
    update = max((i + 1 for i, phase in enumerate(phases) if phase != "update"), default=0)
    backward = next((i for i, phase in enumerate(phases) if phase == "backward"), update)
    spans = [("forward", 0, backward), ("backward", backward, update), ("update", update, count)]
    return [span for span in spans if span[1] < span[2]]

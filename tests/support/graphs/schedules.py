"""Schedules made without a search: from bare actions, or by rule."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from devices.operation import OpSpec
from networks.training import TrainingStep
from solver.addresses.plan import plan_addresses, with_addresses
from solver.constructed.greedy import greedy_schedule
from solver.costing.uncosted import uncosted_graph
from solver.overlap.overlap import overlap_transfers
from solver.problem.footprint import least_ram_bytes
from solver.problem.graph import CostedGraph, PageCost
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Schedule, SolverRecord
from solver.referee.referee import replay

_SOME_COST = PageCost(time_s=1.0, energy_j=1.0)
UNSEARCHED = SolverRecord(
    engine="none",
    formulation="by hand",
    version="",
    seconds=0.0,
    build_seconds=0.0,
    rounds=0,
    threads=1,
)


def schedule_of(graph: CostedGraph, actions: Sequence[Action], **fields: Any) -> Schedule:
    """A schedule of these actions with the referee's figures; its budget is their peak.

    ``fields`` replace or add fields.
    """
    played = replay(graph, actions)
    found = {
        "graph": graph.name,
        "energy_source": graph.energy_source,
        "status": "feasible",
        "energy_j": played.energy_j,
        "time_s": played.time_s,
        "peak_bytes": played.peak_bytes,
        "solver": UNSEARCHED,
        "budget": Budget(ram_bytes=played.peak_bytes),
        "bound_covers": "nothing",
        "actions": tuple(actions),
    }
    return Schedule(**found | fields)


def restated(graph: CostedGraph, schedule: Schedule) -> Schedule:
    """The same actions and addresses, with the figures that they have with the costs of a graph."""
    kept = ("arena_bytes", "budget", "resident_address")
    return schedule_of(graph, schedule.actions, **{name: getattr(schedule, name) for name in kept})


def addressed_schedule(
    graph: CostedGraph,
    actions: Sequence[Action],
    resident_address: Mapping[str, int] | None,
    arena_bytes: int | None,
    **fields: Any,
) -> Schedule:
    """A schedule with addresses, and a budget that admits its arena."""
    peak_bytes = replay(graph, actions).peak_bytes
    placed = {
        "arena_bytes": arena_bytes,
        "budget": Budget(ram_bytes=max(arena_bytes or 0, peak_bytes)),
        "resident_address": resident_address,
    }
    return schedule_of(graph, actions, **placed | fields)


def costed(
    step: TrainingStep, workspace_bytes: Mapping[OpSpec, int] | None = None, *, dma: bool = False
) -> CostedGraph:
    """A graph in which everything takes a second and a joule, and every tensor can be paged."""
    graph = uncosted_graph(step)
    workspace = workspace_bytes or {}
    ops = tuple(
        op.model_copy(
            update={
                "time_s": 1.0,
                "energy_j": 1.0,
                "workspace_bytes": workspace.get(each.spec, 0),
            }
        )
        for op, each in zip(graph.ops, step.ops, strict=True)
    )
    costs = {"page_out": _SOME_COST, "page_in": _SOME_COST}
    return graph.model_copy(
        update={
            "ops": ops,
            "tensors": tuple(tensor.model_copy(update=costs) for tensor in graph.tensors),
            "asynchronous_transfers": dma,
        }
    )


def by_rule(graph: CostedGraph, share: float) -> Schedule:
    """The greedy schedule for ``share`` of the least RAM of any schedule, with addresses."""
    problem = Problem(graph, Budget(ram_bytes=int(share * least_ram_bytes(graph)[0])))
    actions = greedy_schedule(problem, thorough=False)
    assert actions is not None
    actions = overlap_transfers(problem, actions)
    plan = plan_addresses(graph, actions, "all", 0, time.monotonic())
    return addressed_schedule(
        graph, with_addresses(actions, plan), plan.resident_address, plan.arena_bytes
    )

"""Predicted cost of each action of a schedule, from the referee's replay and the graph's intervals.

Intervals of a sum follow the GUM (JCGM 100:2008). Actions that share one measured figure share its
error, so that within a cost key half widths add up (5.2.2, coefficients of 1). Different keys have
the graph's ``error_correlation`` ρ: with half widths h, that of the sum is √((1 - ρ) Σh² + ρ (Σh)²)
(5.2.2); for joules, ρ is its ``energy_error_correlation`` if it states one. A graph that states
none takes them for independent: they add in quadrature (5.1.2). All page-outs share one fitted law,
and all page-ins another. Where transfers run beside ops, the step's
time is not a sum; the contribution of a key is then the difference to the step's time with that
key's costs at an end of their intervals (5.1.3, note 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from devices.profile import Interval
from devices.replay import Activity, ExpectedAction, ExpectedStep, Span
from solver.problem.graph import CostedGraph, Op, PageCost
from solver.problem.schedule import Compute, PageIn, PageOut, Schedule
from solver.referee.referee import Moment, Replay, replay

STORAGE_READ = "storage.read"
STORAGE_WRITE = "storage.write"

Ends: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Level:
    """Bytes in RAM, workspace included, from ``time_s`` (seconds after the step begins) on."""

    time_s: float
    bytes: int


def expected_step(graph: CostedGraph, schedule: Schedule) -> ExpectedStep:
    """Predict time, energy and memory of a step, in total and for each action.

    Args:
        graph: the ops and tensors with their measured or published costs.
        schedule: a schedule of this graph.

    Returns:
        The prediction, with an interval for each total and each action. Intervals of totals follow
        the GUM (JCGM 100:2008), see the module's docstring.

    Raises:
        RefereeError: the schedule is not valid for this graph.
        ValueError: the schedule has no actions.
    """
    if not schedule.actions:
        raise ValueError(f"the schedule of {schedule.graph} has no actions: {schedule.status}")
    played = replay(graph, schedule.actions, schedule.budget.covers)
    actions = tuple(_actions(graph, played.moments))
    return ExpectedStep(
        graph=graph.name,
        energy_source=graph.energy_source,
        time_s=_total_time(graph, schedule, played, actions),
        energy_j=_total_energy(graph, played, actions),
        waited_s=math.fsum(
            moment.waited_s + (moment.time_s if moment.is_beside_ops else 0.0)
            for moment in played.moments
        ),
        budget_bytes=schedule.budget.ram_bytes,
        peak_bytes=played.peak_bytes,
        arena_bytes=schedule.arena_bytes,
        actions=actions,
    )


def memory_levels(played: Replay, spans: Mapping[int, Span] | None = None) -> tuple[Level, ...]:
    """Bytes in RAM over the step.

    Args:
        played: the referee's replay of the schedule.
        spans: measured times of the schedule's actions, by their index. With them, levels follow
            the board's clock; without them, the referee's. An action without a span takes place as
            soon as the action before it ends.

    Returns:
        Levels in the order of time. Several may have the same time; the last of these holds.
    """
    levels: list[Level] = []
    now_s = 0.0
    for number, moment in enumerate(played.moments):
        on_processor = not moment.is_beside_ops and (
            moment.time_s > 0 or isinstance(moment.action, Compute)
        )
        if spans is None:
            start_s, end_s = moment.start_s, moment.start_s + moment.time_s
        elif number in spans and on_processor:
            start_s, end_s = spans[number].start_s, spans[number].start_s + spans[number].time_s
        else:
            start_s = end_s = now_s
        levels.append(Level(start_s, moment.bytes_during))
        levels.append(Level(end_s, moment.bytes_after))
        now_s = end_s
    return tuple(levels)


# --- actions ------------------------------------------------------------------------------------


def _actions(graph: CostedGraph, moments: Sequence[Moment]) -> Iterator[ExpectedAction]:
    ops = {op.name: op for op in graph.ops}
    for number, moment in enumerate(moments):
        match moment.action:
            case Compute():
                op = ops[moment.action.op]
                what: Activity = "recompute" if moment.recomputation else "compute"
                yield _action(number, op.name, what, _key(op), op, moment)
            case PageOut():
                cost = graph.tensor[moment.action.tensor].page_out
                assert cost is not None, "the referee accepts no page-out without a cost"
                yield _action(number, moment.action.tensor, "page_out", STORAGE_WRITE, cost, moment)
            case PageIn():
                cost = graph.tensor[moment.action.tensor].page_in
                assert cost is not None, "the referee accepts no page-in without a cost"
                yield _action(number, moment.action.tensor, "page_in", STORAGE_READ, cost, moment)


def _key(op: Op) -> str:
    """The op's cost key; its name where it has none, as with published rates."""
    return op.cost_key or op.name


def _action(
    number: int, label: str, what: Activity, key: str, cost: Op | PageCost, moment: Moment
) -> ExpectedAction:
    begins_s = moment.transfer_start_s
    return ExpectedAction(
        schedule_index=number,
        label=label,
        what=what,
        cost_key=key,
        kind=cost.kind if isinstance(cost, Op) else None,
        phase=cost.phase if isinstance(cost, Op) else None,
        asynchronous=moment.is_beside_ops,
        start_s=moment.start_s if begins_s is None else begins_s,
        time_s=_interval(cost.time_s, cost.time_s_interval),
        energy_j=_interval(cost.energy_j, cost.energy_j_interval),
    )


def _interval(figure: float, ends: Ends | None) -> Interval:
    low, high = ends or (figure, figure)
    return Interval(median=figure, low=min(low, figure), high=max(high, figure))


# --- totals -------------------------------------------------------------------------------------


def _sum(
    correlation: float,
    total: float,
    actions: Sequence[ExpectedAction],
    parts: Sequence[Interval],
) -> Interval:
    below: dict[str, float] = {}
    above: dict[str, float] = {}
    for action, part in zip(actions, parts, strict=True):
        below[action.cost_key] = below.get(action.cost_key, 0.0) + part.median - part.low
        above[action.cost_key] = above.get(action.cost_key, 0.0) + part.high - part.median
    return _added(correlation, total, list(below.values()), list(above.values()))


def _added(
    correlation: float, total: float, below: Sequence[float], above: Sequence[float]
) -> Interval:
    """The total, with the half widths of its keys added up as their errors correlate."""

    def half(widths: Sequence[float]) -> float:
        apart, together = math.hypot(*widths), math.fsum(widths)
        return math.hypot(math.sqrt(1 - correlation) * apart, math.sqrt(correlation) * together)

    return Interval(median=total, low=max(0.0, total - half(below)), high=total + half(above))


def _total_energy(
    graph: CostedGraph, played: Replay, actions: Sequence[ExpectedAction]
) -> Interval:
    energies_j = [action.energy_j for action in actions]
    return _sum(graph.correlation_of_energies, played.energy_j, actions, energies_j)


def _total_time(
    graph: CostedGraph, schedule: Schedule, played: Replay, actions: Sequence[ExpectedAction]
) -> Interval:
    if not any(action.asynchronous for action in actions):
        times_s = [action.time_s for action in actions]
        return _sum(graph.correlation_of_times, played.time_s, actions, times_s)
    keys = sorted({a.cost_key for a in actions if a.time_s.low < a.time_s.high})
    below, above = [], []
    for key in keys:
        low_s, high_s = (
            replay(_at_end(graph, key, end), schedule.actions, schedule.budget.covers).time_s
            for end in (0, 1)
        )
        below.append(max(0.0, played.time_s - low_s))
        above.append(max(0.0, high_s - played.time_s))
    return _added(graph.correlation_of_times, played.time_s, below, above)


def _at_end(graph: CostedGraph, key: str, end: int) -> CostedGraph:
    """The graph with the times of one key at the low (0) or the high (1) end of their intervals."""

    def moved(cost: PageCost | None, cost_key: str) -> PageCost | None:
        if cost is None or cost.time_s_interval is None or cost_key != key:
            return cost
        return cost.model_copy(update={"time_s": cost.time_s_interval[end]})

    ops = tuple(
        op.model_copy(update={"time_s": op.time_s_interval[end]})
        if _key(op) == key and op.time_s_interval is not None
        else op
        for op in graph.ops
    )
    tensors = tuple(
        tensor.model_copy(
            update={
                "page_out": moved(tensor.page_out, STORAGE_WRITE),
                "page_in": moved(tensor.page_in, STORAGE_READ),
            }
        )
        for tensor in graph.tensors
    )
    # Not model_copy: it would copy the graph's cached properties.
    fields = {name: getattr(graph, name) for name in type(graph).model_fields if name != "schema_"}
    return CostedGraph(**{**fields, "ops": ops, "tensors": tensors})

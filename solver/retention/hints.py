"""Conversion between schedules and values of the retention model's variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from solver.problem.liveness import with_frees
from solver.problem.schedule import Action, Compute, PageIn, PageOut
from solver.retention.model import RetentionModel
from solver.retention.timeline import BEGIN


def actions_of(
    model: RetentionModel, chosen: Callable[[cp_model.LinearExpr], int]
) -> tuple[Action, ...]:
    """Convert a solution to a schedule.

    ``chosen`` returns the value of a variable. A tensor is paged in right before the first op that
    the retention serves.
    """
    problem, timeline = model.problem, model.timeline
    ops, tensors = problem.graph.ops, problem.graph.tensors

    def page_outs(candidates: Sequence[int]) -> list[Action]:
        out = (i for i in candidates if i in model.page_out and chosen(model.page_out[i]))
        return [PageOut(tensor=tensors[i].name) for i in out]

    done = [
        (chosen(execution.event), k, execution)
        for k, executions in enumerate(model.executions)
        for execution in executions
        if chosen(execution.present)
    ]
    done.sort(key=lambda one: one[0])
    actions = page_outs([i for i, starts in enumerate(problem.starts_in_ram) if starts])
    brought: set[tuple[int, int]] = set()
    for event, k, execution in done:
        for i, serving in execution.served_by.items():
            number = next(n for n, literal in enumerate(serving) if chosen(literal))
            paged_in = model.retentions[i][number].paged_in
            if paged_in is not None and chosen(paged_in) and (i, number) not in brought:
                brought.add((i, number))
                actions.append(PageIn(tensor=tensors[i].name))
        if k < timeline.end_op:
            actions.append(Compute(op=ops[k].name))
        if event == timeline.event(k, k):
            actions += page_outs(timeline.writes[k])
    return with_frees(problem.graph, actions)


@dataclass
class _Stretch:
    """A stay of a tensor in RAM.

    ``made_by`` is the execution of its op that it begins with (None: a page-in), ``start`` and
    ``end`` are events, and ``read_by`` lists its readers: op and number of the execution.
    """

    made_by: int | None
    start: int | None = None
    end: int = 0
    read_by: list[tuple[int, int]] = field(default_factory=list)


class _NotRepresentable(Exception):
    """The model has no solution for a schedule."""


def hint_of(model: RetentionModel, actions: Sequence[Action]) -> dict[int, int] | None:
    """Convert a schedule to values of the model's variables.

    Returns None if the model excludes the schedule, because ops are in another order or a tensor
    enters RAM too often.
    """
    try:
        return _Reader(model).read(actions)
    except _NotRepresentable:
        return None


class _Reader:
    """Converts one schedule to values."""

    def __init__(self, model: RetentionModel) -> None:
        self._model = model
        self._timeline = model.timeline
        self._values: dict[int, int] = {}
        self._stretches: list[list[_Stretch]] = [[] for _ in model.retentions]
        self._runs = [0] * len(model.executions)
        self._stage = 0
        self._event = BEGIN
        for i, starts in enumerate(model.problem.starts_in_ram):
            if starts:
                self._stretches[i].append(_Stretch(0, BEGIN, BEGIN + 1))

    def read(self, actions: Sequence[Action]) -> dict[int, int]:
        problem = self._model.problem
        op_index = {op.name: k for k, op in enumerate(problem.graph.ops)}
        for action in actions:
            match action:
                case Compute():
                    self._compute(op_index[action.op])
                case PageIn():
                    self._stretches[problem.tensor_index[action.tensor]].append(_Stretch(None))
                case PageOut():
                    i = problem.tensor_index[action.tensor]
                    if i not in self._model.page_out:
                        raise _NotRepresentable
                    self._set(self._model.page_out[i], 1)
        self._compute(self._timeline.end_op)
        for i, stretches in enumerate(self._stretches):
            if not self._timeline.stays[i]:
                self._retain(i, [s for s in stretches if s.made_by == 0 or s.read_by])
        return self._complete()

    def _compute(self, k: int) -> None:
        timeline, number = self._timeline, self._runs[k]
        event = timeline.event(k, self._stage)
        late = self._stage > timeline.last[k]
        if late or event <= self._event or number >= len(self._model.executions[k]):
            raise _NotRepresentable
        self._event = event
        self._runs[k] += 1
        execution = self._model.executions[k][number]
        self._set(execution.present, 1)
        self._set(execution.stage, self._stage)
        if k == self._stage:
            self._stage += 1
        for i in execution.served_by:
            if not self._stretches[i]:
                raise _NotRepresentable
            stretch = self._stretches[i][-1]
            stretch.start = event if stretch.start is None else stretch.start
            stretch.end = event if i in timeline.consumes[k] else event + 1
            stretch.read_by.append((k, number))
        for i in timeline.writes[k]:
            self._stretches[i].append(_Stretch(number, event, event + 1))

    def _retain(self, i: int, stretches: Sequence[_Stretch]) -> None:
        retentions = self._model.retentions[i]
        if len(stretches) > len(retentions):
            raise _NotRepresentable
        begun = set()
        for c, (stretch, retention) in enumerate(zip(stretches, retentions, strict=False)):
            if stretch.made_by is None:
                begin = retention.paged_in
            else:
                begin = retention.made_by.get(stretch.made_by)
                begun.add(stretch.made_by)
            if begin is None or stretch.start is None:
                raise _NotRepresentable
            for variable, value in (
                (begin, 1),
                (retention.present, 1),
                (retention.end, stretch.end),
                (retention.length, stretch.end - stretch.start),
            ):
                self._set(variable, value)
            if isinstance(retention.start, cp_model.IntVar):
                self._set(retention.start, stretch.start)
            for k, number in stretch.read_by:
                self._set(self._model.executions[k][number].served_by[i][c], 1)
        made = self._model.problem.producer[i]
        for number in range(1, self._runs[made] if made >= 0 else 0):
            if number not in begun:
                if (i, number) not in self._model.unneeded:
                    raise _NotRepresentable
                self._set(self._model.unneeded[i, number], 1)

    def _set(self, variable: cp_model.IntVar, value: int) -> None:
        self._values[variable.index] = value

    def _complete(self) -> dict[int, int]:
        """Set every other variable to the least value of its domain."""
        variables = self._model.program.proto.variables
        return {n: self._values.get(n, v.domain[0]) for n, v in enumerate(variables)}

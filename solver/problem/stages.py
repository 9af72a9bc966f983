"""Stages of a schedule.

Stage ``t`` ends with the first execution of op ``t``, the last stage with the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, Free, PageIn


@dataclass
class Stage:
    """Tensors in RAM when the stage begins, ops that it recomputes, tensors that it pages in."""

    retained: set[int] = field(default_factory=set)
    recomputed: set[int] = field(default_factory=set)
    paged_in: set[int] = field(default_factory=set)


def stages_of(problem: Problem, actions: Sequence[Action]) -> list[Stage]:
    """Cut ``actions`` into one stage for each op and one for the end of the step.

    ``actions`` include their ``free`` actions, and first executions keep the graph's order.
    """
    op_index = {op.name: k for k, op in enumerate(problem.graph.ops)}
    in_ram = {i for i, starts in enumerate(problem.starts_in_ram) if starts}
    stages = [Stage()]
    begun = False  # frees between two stages belong to the earlier one
    for action in actions:
        if isinstance(action, Compute | PageIn) and not begun:
            stages[-1].retained = set(in_ram)
            begun = True
        match action:
            case Compute():
                k = op_index[action.op]
                in_ram.update(problem.writes[k])
                in_ram.difference_update(problem.consumes[k])
                if k == len(stages) - 1:
                    stages.append(Stage())
                    begun = False
                else:
                    stages[-1].recomputed.add(k)
            case PageIn():
                stages[-1].paged_in.add(problem.tensor_index[action.tensor])
                in_ram.add(problem.tensor_index[action.tensor])
            case Free():
                in_ram.discard(problem.tensor_index[action.tensor])
    if not begun:
        stages[-1].retained = in_ram
    return stages

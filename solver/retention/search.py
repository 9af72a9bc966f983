"""CP-SAT search on the retention model."""

from __future__ import annotations

from collections.abc import Callable

from ortools.sat.python import cp_model

from solver.constructed import keep_everything
from solver.engines.messages import Bound, Finished
from solver.retention.hints import actions_of, hint_of
from solver.retention.messages import Found, Task
from solver.retention.model import RetentionModel

# Full searches in the order in which they get threads; the remaining threads improve the best
# solution by large-neighbourhood search. The linear relaxation of a cumulative resource is so weak
# that searches without one are faster.
_SEARCHES = ("quick_restart_no_lp", "no_lp")


class _Listener(cp_model.CpSolverSolutionCallback):
    """Sends each solution as actions."""

    def __init__(self, model: RetentionModel, send: Callable[[Found], None]) -> None:
        super().__init__()
        self._model = model
        self._send = send

    def on_solution_callback(self) -> None:
        self._send(Found(actions_of(self._model, self.value)))


def search(task: Task, send: Callable[[Found | Bound], None]) -> Finished:
    """Search until proven, and send better schedules and bounds.

    If no start is a solution, the hint is to keep everything, which exceeds the budget but
    recomputes nothing. This finds a first solution much sooner than the paper's first phase, which
    starts there and minimises memory down to the budget.
    """
    model = RetentionModel(task.problem, task.objective, task.intervals, task.known)
    starts = (*task.starts, keep_everything(task.problem.graph))
    hint = next(filter(None, (hint_of(model, actions) for actions in starts)), {})
    for variable, value in hint.items():
        model.program.proto.solution_hint.vars.append(variable)
        model.program.proto.solution_hint.values.append(value)

    def send_bound(bound: float) -> None:
        send(Bound(model.constant + bound * model.unit))

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = task.threads
    solver.parameters.subsolvers.extend(_SEARCHES[: max(1, task.threads - 1)])
    solver.parameters.linearization_level = 0
    # Presolve takes longer here than it saves.
    solver.parameters.cp_model_presolve = False
    solver.parameters.catch_sigint_signal = False
    solver.best_bound_callback = send_bound
    status = solver.solve(model.program, _Listener(model, send))
    if status == cp_model.MODEL_INVALID:
        return Finished("failed", model.program.validate().strip())
    if status == cp_model.INFEASIBLE:
        return Finished("infeasible")
    if status == cp_model.OPTIMAL:
        send_bound(solver.best_objective_bound)
        return Finished("optimal")
    return Finished("stopped")

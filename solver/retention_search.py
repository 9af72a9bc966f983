"""CP-SAT at work on the retention model: to a schedule that fits, and from there to the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ortools.sat.python import cp_model

from solver.baselines import keep_everything
from solver.engine_messages import Bound, Finished
from solver.problem import Problem
from solver.referee import RefereeError, replay, verify
from solver.retention_hints import hint_of, steps_of
from solver.retention_messages import Found, Task
from solver.retention_model import RetentionModel
from solver.schedule import Step

# Full searches, in the order in which threads are given to them; the remaining threads, one at
# least, improve the best solution by large-neighbourhood search. Linear relaxations of cumulative
# resources are weak: the searches that do without them make the more progress.
_SEARCHES = ("quick_restart_no_lp", "no_lp", "max_lp")


class _Listener(cp_model.CpSolverSolutionCallback):
    """Has each solution made into steps and told; ends the search where ``enough`` says so."""

    def __init__(self, model: RetentionModel, enough: Callable[[tuple[Step, ...]], bool]) -> None:
        super().__init__()
        self._model = model
        self._enough = enough

    def on_solution_callback(self) -> None:
        if self._enough(steps_of(self._model, self.value)):
            self.stop_search()


def _minimise(
    model: RetentionModel,
    start: dict[int, int] | None,
    threads: int,
    enough: Callable[[tuple[Step, ...]], bool],
    on_bound: Callable[[float], None] = lambda _bound: None,
) -> Finished:
    for variable, value in (start or {}).items():
        model.program.proto.solution_hint.vars.append(variable)
        model.program.proto.solution_hint.values.append(value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = threads
    solver.parameters.subsolvers.extend(_SEARCHES[: max(1, threads - 1)])
    solver.parameters.linearization_level = 0
    # It takes longer here than it saves.
    solver.parameters.cp_model_presolve = False
    solver.parameters.catch_sigint_signal = False
    solver.best_bound_callback = lambda bound: on_bound(model.constant + bound * model.unit)
    status = solver.solve(model.program, _Listener(model, enough))
    if status == cp_model.MODEL_INVALID:
        return Finished("failed", model.program.validate().strip())
    if status == cp_model.INFEASIBLE:
        return Finished("infeasible")
    if status == cp_model.OPTIMAL:
        on_bound(model.constant + solver.best_objective_bound * model.unit)
        return Finished("optimal")
    return Finished("stopped")


def search(task: Task, tell: Callable[[Found | Bound], None]) -> Finished:
    """Tells of better and better schedules and bounds until proven."""
    model = RetentionModel(task.problem, task.objective, task.intervals)
    start = next(filter(None, (hint_of(model, steps) for steps in task.starts)), None)
    if start is None:
        fitting = _fit(task)
        if isinstance(fitting, Finished):
            return fitting
        tell(Found(fitting))
        start = hint_of(model, fitting)

    def found(steps: tuple[Step, ...]) -> bool:
        tell(Found(steps))
        return False

    return _minimise(model, start, task.threads, found, lambda bound: tell(Bound(bound)))


def _fit(task: Task) -> tuple[Step, ...] | Finished:
    """The paper's first phase: from keeping everything to a schedule within the budget."""
    graph, budget = task.problem.graph, task.problem.budget
    everything = keep_everything(graph)
    peak_bytes = replay(graph, everything, budget.covers).peak_bytes
    model = RetentionModel(task.problem, "memory", task.intervals, most_bytes=peak_bytes)
    fitting: list[tuple[Step, ...]] = []

    def found(steps: tuple[Step, ...]) -> bool:
        if _fits(task.problem, steps):
            fitting.append(steps)
        return bool(fitting)

    finished = _minimise(model, hint_of(model, everything), task.threads, found)
    if fitting:
        return fitting[0]
    return Finished("infeasible") if finished.outcome == "optimal" else finished


def _fits(problem: Problem, steps: Sequence[Step]) -> bool:
    try:
        verify(problem.graph, steps, problem.budget)
    except RefereeError:
        return False
    return True

"""The baselines by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from solver.baselines.baseline import Baseline, BaselineResult, judged
from solver.baselines.checkmate import lp_rounding
from solver.baselines.chen import chen
from solver.baselines.coop import coop
from solver.baselines.dtr import dtr
from solver.baselines.griewank import griewank
from solver.baselines.restricted import paging_only, remat_only
from solver.constructed.greedy import greedy_schedule
from solver.constructed.unsearched import keep_everything, page_everything
from solver.options import SolverOptions
from solver.problem.problem import Problem
from solver.referee.referee import verify
from solver.time_limit import OutOfTime, TimeLimit, check_time


def _keep_everything(problem: Problem, _time_limit_s: float, _threads: int) -> BaselineResult:
    return judged(problem, keep_everything(problem.graph), "nothing recomputed or paged")


def _page_everything(problem: Problem, _time_limit_s: float, _threads: int) -> BaselineResult:
    if not problem.budget.paging:
        return BaselineResult(None, "the baseline pages, which this budget excludes")
    return judged(problem, page_everything(problem), "paged in right before each use")


def _capuchin_like(problem: Problem, _time_limit_s: float, _threads: int) -> BaselineResult:
    actions = greedy_schedule(problem)
    if actions is None:
        check_time()  # the rule ends early and says nothing of it
        return BaselineResult(None, "the greedy rule finds no schedule within the budget")
    return BaselineResult(actions, "the best of many runs of the greedy rule")


BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {
        "keep-everything": _keep_everything,
        "page-everything": _page_everything,
        "chen-sqrt-n": chen,
        "griewank": griewank,
        "remat-only": remat_only,
        "paging-only": paging_only,
        "checkmate-lp-rounding": lp_rounding,
        "capuchin-like": _capuchin_like,
        "dtr": dtr,
        "coop": coop,
    }
)


def run_baseline(
    name: str, problem: Problem, time_limit_s: float, threads: int = SolverOptions.threads
) -> BaselineResult:
    """Run a baseline and verify its schedule.

    Args:
        name: A key of ``BASELINES``.
        problem: The problem.
        time_limit_s: Limit on wall time.
        threads: Number of threads of a method that searches.

    Returns:
        The result; its actions are None if the baseline has no schedule within the budget.

    Raises:
        KeyError: ``name`` is unknown.
        EngineFailed: The process of an engine failed.
        RefereeError: A schedule is invalid, which is a defect.
    """
    try:
        with TimeLimit.after(time_limit_s).enforced():
            result = BASELINES[name](problem, time_limit_s, threads)
    except OutOfTime:
        return BaselineResult(None, f"stopped by the time limit of {time_limit_s:.3g} s")
    if result.actions is not None:
        verify(problem.graph, result.actions, problem.budget)
    return result

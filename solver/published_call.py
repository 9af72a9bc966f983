"""The call that users of POET know, with its parameters."""

from __future__ import annotations

from devices.library import resolve_profile
from networks.models import build_model
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.options import Coverage, EngineName, SolverOptions
from solver.problem.schedule import Budget, Schedule
from solver.referee.referee import replay
from solver.solving.solving import solve_graph


def solve(
    model: str,
    platform: str,
    ram_budget: int,
    runtime_budget: float | None = None,
    paging: bool = True,
    remat: bool = True,
    time_limit_s: float | None = None,
    solve_threads: int = 2,
    *,
    batch_size: int = 1,
    budget_covers: Coverage = "activations",
    gap: float = 0.001,
    engine: EngineName = "highs",
) -> Schedule:
    """The schedule of least energy for one training step of ``model`` on ``platform``.

    ``platform`` names a profile (published: m0, m4, a72, …; or one that was measured),
    ``ram_budget`` is in bytes, ``runtime_budget`` a multiple of one step without paging or
    rematerialization. As in POET the budget covers activations and their gradients;
    ``budget_covers="all"`` adds parameters, their gradients and optimizer state.

    Raises :class:`~devices.documents.document.DocumentError` for an unknown platform,
    :class:`~networks.models.ModelError` for an unknown model and
    :class:`~solver.costing.costing.CostingError` where the profile cannot cost it.
    """
    profile = resolve_profile(platform)
    graph = cost_graph(build_model(model, batch_size), profile).graph
    step_s = replay(graph, keep_everything(graph)).time_s
    budget = Budget(
        ram_bytes=ram_budget,
        covers=budget_covers,
        deadline_s=None if runtime_budget is None else runtime_budget * step_s,
        paging=paging,
        rematerialization=remat,
    )
    options = SolverOptions(
        engine=engine, gap=gap, threads=solve_threads, time_limit_s=time_limit_s
    )
    return solve_graph(graph, budget, options)

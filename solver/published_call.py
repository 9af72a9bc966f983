"""``solve``: a schedule in one call, with the parameters of POET's ``solve``."""

from __future__ import annotations

from devices.library import resolve_profile
from devices.quantities import MOST_BYTES
from networks.models import build_model
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.options import (
    Coverage,
    EngineName,
    SolverOptions,
    require_choice,
    require_number,
    require_whole,
)
from solver.problem.schedule import Budget, Schedule
from solver.referee.referee import replay
from solver.solving.solving import solve_graph

# A deadline of so many steps of a billion seconds is within the limit of any quantity.
_MOST_STEPS = 1e9


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
    """Find the schedule of least energy for one training step of a model on a platform.

    Within a RAM budget and an optional deadline, the schedule decides which operations are
    recomputed (rematerialization), which tensors are paged out to storage and paged in again, and
    when. The parameters follow POET (Patil et al., "POET: Training Neural Networks on Tiny Devices
    with Integrated Rematerialization and Paging", ICML 2022). The result is verified by replaying
    it.

    ::

        from solver import solve

        schedule = solve("linear", "m4", ram_budget=5000, runtime_budget=2.0)
        print(schedule.status, schedule.energy_j, schedule.peak_bytes)

    Args:
        model: Name of a built-in network.
        platform: Name or path of a device profile: published (``m0``, ``m4``, ``a72``, …) or
            measured on a board.
        ram_budget: RAM in bytes for the tensors that ``budget_covers`` names.
        runtime_budget: Deadline, as a multiple of the time of one step without paging or
            rematerialization; None for no deadline.
        paging: Whether tensors may be paged.
        remat: Whether operations may be recomputed.
        time_limit_s: Limit on wall time, after which the best schedule found so far is returned;
            planning its addresses may take some seconds more. None for no limit.
        solve_threads: Number of threads.
        batch_size: Samples in one training step.
        budget_covers: ``"activations"`` counts activations and their gradients, as POET does;
            ``"all"`` adds parameters, their gradients and optimizer state.
        gap: Accepted distance between energy and proven bound, relative to the energy.
        engine: Solver of integer programs.

    Returns:
        The schedule, with energy, proven bound, time, peak RAM and arena addresses. Its ``status``
        is ``"optimal"`` (within ``gap``), ``"feasible"``, ``"infeasible"`` (the smallest sufficient
        RAM budget and deadline are given where known) or ``"no_solution"`` (none found in time).

    Raises:
        InputError: Another argument has a value that is not allowed; nothing was searched.
        DocumentError: ``platform`` is unknown or its profile is invalid.
        ModelError: ``model`` is unknown.
        CostingError: The profile lacks costs that the model needs.
        EngineFailed: The process of an engine failed.
    """
    options = SolverOptions(
        engine=engine, gap=gap, threads=solve_threads, time_limit_s=time_limit_s
    )
    require_whole("ram_budget", ram_budget, least=0, most=MOST_BYTES)
    require_whole("batch_size", batch_size, least=1, most=MOST_BYTES)
    require_choice("budget_covers", budget_covers, Coverage)
    if runtime_budget is not None:
        require_number(
            "runtime_budget", runtime_budget, most=_MOST_STEPS, or_else=", or None for no deadline"
        )
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
    return solve_graph(graph, budget, options)

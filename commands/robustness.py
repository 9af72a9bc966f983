"""``solve --draws``: how the schedule fares when costs are drawn from the profile's intervals."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from commands.console import Console, si
from devices.errors import InputError

if TYPE_CHECKING:
    from solver.options import SolverOptions
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import DrawStatistics, Schedule, Share
    from solver.robustness.draws import CostDraws
    from solver.robustness.search import DrawProgress

_SEED = 0
# For all draws together, where the command has no --time-limit.
_TIME_LIMIT_S = 300.0


def draws_asked_for(arguments: Namespace, graph: CostedGraph) -> CostDraws | None:
    """Raises ``NoIntervalsError`` if the graph states no intervals."""
    if arguments.draws is None:
        if arguments.robust:
            raise InputError("--robust needs --draws, the number of draws, such as --draws 100")
        return None
    from solver.robustness.draws import draw_costs

    return draw_costs(graph, arguments.draws, _SEED)


def assess_robustness(
    arguments: Namespace,
    console: Console,
    schedule: Schedule,
    draws: CostDraws,
    options: SolverOptions,
) -> Schedule:
    """The schedule of least energy with its ``robustness``, or with ``--robust`` the one that is
    best on average. A better one than ``schedule`` may have turned up.
    The draws may take as long as the search, in as many processes as that had threads."""
    from rich.console import Console as RichConsole
    from rich.status import Status

    from solver.pools import local_pool
    from solver.robustness.robustness import assess

    limit_s = options.time_limit_s or _TIME_LIMIT_S
    console.say(
        f"holding the schedule against {arguments.draws} draws, for at most {limit_s:g} s;"
        " Ctrl-C ends that earlier"
    )
    with (
        Status("starting", console=RichConsole(stderr=True)) as status,
        local_pool(options.threads) as pool,
    ):

        def tell(progress: DrawProgress) -> None:
            status.update(
                f"{progress.seconds:5.1f} s  {progress.solved_draws} of {progress.draws} draws"
                f" searched, {progress.undecided} undecided, {progress.schedules} schedules"
            )

        found = assess(schedule, draws, _SEED, options, pool, limit_s, tell)
    robustness, chosen = found.robustness, found.least_energy
    if arguments.robust and found.best_on_average is not None:
        chosen = found.best_on_average
        robustness = robustness.model_copy(update={"schedule": "best_on_average"})
    return chosen.model_copy(update={"robustness": robustness})


def summarise_robustness(console: Console, schedule: Schedule) -> None:
    robustness = schedule.robustness
    if robustness is None:
        return
    known = f"{robustness.schedules} schedule{'s' if robustness.schedules > 1 else ''}"
    percent = f"{100 * robustness.tolerance:g} %"
    console.result(
        f"\n{robustness.draws} draws of all costs from their 95 % intervals,"
        f" {robustness.solved_draws} of them searched again, {known} known,"
        f" {robustness.seconds:.0f} s"
    )
    names = [
        "energy at the stated costs",
        "mean energy over the draws",
        f"within {percent} of the best known",
        f"within {percent} of the best, proven",
        "mean excess over the best known",
        "in 95 % of the draws at most",
    ]
    if robustness.least_energy.in_time is not None:
        names.append("in time")
    columns = [["", *names], ["least energy", *_column(robustness.least_energy)]]
    best = robustness.best_on_average
    if best is not None and best != robustness.least_energy:
        columns.append(["best on average", *_column(best)])
    console.table([list(row) for row in zip(*columns, strict=True)], right=(1, 2))
    if best is None:
        verdict = "no schedule is known that is in time in 95 % of the draws; written is the one of"
        verdict += " least energy"
    elif best == robustness.least_energy:
        verdict = "the schedule of least energy is the best on average, too, of those known"
    elif robustness.schedule == "best_on_average":
        verdict = "written is the one that is best on average"
    else:
        verdict = "written is the one of least energy; --robust writes the one best on average"
    console.result(
        f"{verdict}; proven, of the same schedules as above: none needs less than"
        f" {si(robustness.mean_bound_j, 'J')} on average"
    )


def _column(figures: DrawStatistics) -> list[str]:
    column = [
        si(figures.energy_j, "J", 6),
        si(figures.mean_energy_j, "J", 6),
        _percent(figures.within),
        _percent(figures.provably_within),
        "" if figures.mean_regret is None else f"{100 * figures.mean_regret:.3f} %",
        "" if figures.regret_95 is None else f"{100 * figures.regret_95:.3f} %",
    ]
    return column if figures.in_time is None else [*column, _percent(figures.in_time)]


def _percent(share: Share) -> str:
    return f"{100 * share.value:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f} %)"

"""``solve --draws``: assess the schedule under costs drawn from the profile's intervals."""

from __future__ import annotations

from commands.console import Console
from devices.documents.readable import lower_bound, si
from solver.options import SolverOptions
from solver.problem.schedule import DrawStatistics, Schedule, Share
from solver.robustness.draws import CostDraws
from solver.robustness.robustness import assess_robustness, draws_limit_s
from solver.robustness.search import DrawProgress
from solver.solving.shared_ram import SharedRam


def assess(
    console: Console,
    schedule: Schedule,
    draws: CostDraws,
    options: SolverOptions,
    robust: bool,
    ram: SharedRam | None,
) -> Schedule:
    """Call :func:`~solver.robustness.robustness.assess_robustness` and show its progress.

    It chooses among schedules for which the board's ``ram`` has room, with the records of them.
    """

    def can_run(found: Schedule) -> bool:
        use = None if ram is None else ram.use(found)
        return use is None or use.fits

    console.say(
        f"assessing the schedule with {len(draws.energy_j)} draws, for at most"
        f" {draws_limit_s(options):g} s; Ctrl-C ends it earlier"
    )
    with console.status("starting") as status:

        def show(progress: DrawProgress) -> None:
            status.show(
                f"{progress.seconds:5.1f} s  {progress.solved_draws} of {progress.draws} draws"
                f" searched, {progress.undecided} undecided, {progress.schedules} schedules",
                passing=True,
            )

        return assess_robustness(schedule, draws, options, robust, show, can_run)


def summarise_robustness(console: Console, schedule: Schedule) -> None:
    """Print the assessment with draws; nothing if there was none."""
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
    has_deadline = robustness.least_energy.in_time is not None
    names = [
        "energy at the stated costs",
        "mean energy over the draws",
        f"within {percent} of the best known",
        f"within {percent} of the best, proven",
        f"mean excess over the best known{', if in time' if has_deadline else ''}",
        f"in 95 % of {'these' if has_deadline else 'the'} draws at most",
    ]
    if has_deadline:
        names.append("in time")
    columns = [["", *names], ["least energy", *_column(robustness.least_energy)]]
    best = robustness.best_on_average
    if best is not None and best != robustness.least_energy:
        columns.append(["best on average", *_column(best)])
    console.table([list(row) for row in zip(*columns, strict=True)], right=(1, 2))
    if best is None:
        verdict = "no known schedule is in time in 95 % of the draws; the schedule of least energy"
        verdict += " is written"
    elif best == robustness.least_energy:
        verdict = "of the known schedules, the one of least energy is also the best on average"
    elif robustness.schedule == "best_on_average":
        verdict = "the schedule that is best on average is written"
    else:
        verdict = "the schedule of least energy is written; --robust writes the best on average"
    console.result(
        f"{verdict}; proven, for the same schedules as above: none needs less than"
        f" {lower_bound(robustness.mean_bound_j, 'J')} on average"
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

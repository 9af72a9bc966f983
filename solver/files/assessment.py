"""Check of the statistics over draws that a schedule states."""

from __future__ import annotations

import math
from collections.abc import Iterator

from devices.documents.readable import si
from solver.problem.graph import CostedGraph
from solver.problem.schedule import DrawStatistics, Robustness, Schedule, Share

_SAME = 1e-6
# An energy counts as within the tolerance up to this relative difference.
_SHARE_ROUNDING = 1e-9


def wrong_assessment(graph: CostedGraph, schedule: Schedule) -> Iterator[str]:
    """Sentences about statistics that do not follow from the draws or from each other.

    The costs are drawn again with the stated seed, so that the mean energy of the schedule is
    recomputed. The best schedules of the draws are not in the file: the excesses over them cannot
    be recomputed, but everything that summarizes them is.
    """
    stated = schedule.robustness
    if stated is None:
        return
    columns = {"least_energy": stated.least_energy, "best_on_average": stated.best_on_average}
    held = columns[stated.schedule]
    if held is None:
        yield "states robustness.schedule best_on_average; it has no statistics of it"
        return
    yield from _held(graph, schedule, stated, held)
    for name, statistics in columns.items():
        if statistics is not None:
            for sentence in _summaries(statistics, stated):
                yield f"robustness.{name}: {sentence}"


def _held(
    graph: CostedGraph, schedule: Schedule, stated: Robustness, held: DrawStatistics
) -> Iterator[str]:
    """Sentences about the energies of the schedule whose actions the file holds."""
    from solver.robustness.draws import NoDrawsError, draw_costs  # numpy, only if needed

    try:
        draws = draw_costs(graph, stated.draws, stated.seed)
    except NoDrawsError as error:
        yield f"states robustness that cannot be checked: {error}"
        return
    mean_j = float((draws.energy_j @ draws.items.counts(schedule.actions)).mean())
    found = (("energy_j", held.energy_j, schedule.energy_j or 0.0),)
    for name, figure, recomputed in (*found, ("mean_energy_j", held.mean_energy_j, mean_j)):
        if not math.isclose(figure, recomputed, rel_tol=_SAME):
            yield (
                f"states robustness.{stated.schedule}.{name} {si(figure, 'J', 6)}; with the drawn"
                f" costs it is {si(recomputed, 'J', 6)}"
            )


def _summaries(statistics: DrawStatistics, stated: Robustness) -> Iterator[str]:
    """Sentences about summaries that do not follow from the excesses in the draws."""
    import numpy as np

    if len(statistics.regrets) != stated.draws:
        yield f"states {len(statistics.regrets)} regrets of {stated.draws} draws"
        return
    in_time = np.array([regret for regret in statistics.regrets if regret is not None])
    mean = float(in_time.mean()) if in_time.size else None
    most = float(np.quantile(in_time, 0.95)) if in_time.size else None
    for name, figure, recomputed in (
        ("mean_regret", statistics.mean_regret, mean),
        ("regret_95", statistics.regret_95, most),
    ):
        if not _equal(figure, recomputed):
            yield f"states {name} {figure}; that of its regrets is {recomputed}"
    most_regret = (1 + stated.tolerance) * (1 + _SHARE_ROUNDING) - 1
    within = int((in_time <= most_regret).sum())
    shares: list[tuple[str, Share | None, int | None]] = [
        ("within", statistics.within, within),
        ("in_time", statistics.in_time, in_time.size),
        ("provably_within", statistics.provably_within, None),
    ]
    for name, share, count in shares:
        if share is not None:
            yield from _share(name, share, count, stated.draws)
    if statistics.provably_within.value > statistics.within.value + _SAME:
        yield "states provably_within above within"
    if statistics.mean_energy_j < stated.mean_bound_j * (1 - _SAME):
        yield "states mean_energy_j below mean_bound_j"


def _share(name: str, share: Share, count: int | None, draws: int) -> Iterator[str]:
    from solver.robustness.robustness import share_of

    expected = share_of(round(share.value * draws) if count is None else count, draws)
    for part in ("value", "low", "high"):
        figure, recomputed = getattr(share, part), getattr(expected, part)
        if abs(figure - recomputed) > _SAME:
            yield f"states {name}.{part} {figure:.6g}; that of its draws is {recomputed:.6g}"


def _equal(figure: float | None, recomputed: float | None) -> bool:
    if figure is None or recomputed is None:
        return figure is recomputed
    return math.isclose(figure, recomputed, rel_tol=_SAME, abs_tol=_SAME * _SAME)

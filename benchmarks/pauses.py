"""Intervals of a step on a computer whose speed changes, from sittings in pauses of a profile.

    python -m benchmarks.pauses [--boards 400] [--write docs/benchmarks/pauses.md]

Sittings of made-up computers are drawn, predicted from, and held against a later one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.machine import package_version
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from devices.profile import DeviceProfile, Interval, ProfiledNetwork
from networks.models import build_model
from networks.training.step import TrainingStep
from replay.costs.context import step_costs, with_step_costs
from replay.costs.sittings import WatchedSitting
from replay.expectation import expected_step
from solver.costing.costing import cost_graph
from solver.problem.schedule import Compute
from tests.support.graphs.profiles import made_up_profile
from tests.support.onboard.replays import scheduled

_TEXT = """
The times of the ops of `digits` are drawn for the sittings of a profile and for one run a minute
after the last. The computer's speed changes by 3 % (one standard deviation), and its correlation
after t seconds is exp(-t / memory); each op deviates by 1 % besides. *Held* is how many of the
intervals of the step hold the later step, *width* half of their width, in the mean. Intervals *by
pauses* are those of the product: sittings of one pause count as one time. *As independent*, each
sitting counts as a time of its own. Sittings of one pause are 0.8 s apart.
"""

_NETWORK = ProfiledNetwork(model="digits", batch=1, optimizer="sgd")
_SPEED, _OWN = 0.03, 0.01
_WITHIN_S, _LATER_S = 0.8, 60.0


@dataclass(frozen=True)
class Pauses:
    """Pauses of a profile, ``apart_s`` from each other, with sittings ``in_each``."""

    count: int
    in_each: int
    apart_s: float

    @property
    def when_s(self) -> list[float]:
        """When each sitting is."""
        numbers = [(k, n) for k in range(self.count) for n in range(self.in_each)]
        return [self.apart_s * k + _WITHIN_S * n for k, n in numbers]


@dataclass(frozen=True)
class Held:
    """Share of later steps that their intervals hold, and the intervals' mean half width."""

    share: float
    half_width: float


_PLANS = (
    *(Pauses(5, 2, 60.0), Pauses(3, 3, 120.0), Pauses(7, 2, 100.0)),
    *(Pauses(10, 1, 5.0), Pauses(5, 2, 5.0), Pauses(1, 9, 0.0)),
)
_MEMORIES_S = (0.05, 6.0)


def simulate(pauses: Pauses, memory_s: float, boards: int, *, by_pauses: bool = True) -> Held:
    """Predict a later step of each of many boards.

    Args:
        pauses: The sittings of each board's profile.
        memory_s: How long the computer's speed stays similar.
        boards: Number of boards.
        by_pauses: Whether sittings of one pause count as one time.
    """
    step = build_model("digits", 1, "sgd")
    board = made_up_profile(list(step.costed_specs))
    board = board.changed(
        operations=[
            each.model_copy(
                update={"cold": each.cold.model_copy(update={"time_s": _exact(each.cold.time_s)})}
            )
            for each in board.operations
        ]
    )
    own_s = {each.op: each.cold.time_s.median for each in board.operations}
    base_s = np.array([own_s[step.cost_keys[op.name]] for op in step.ops])
    when_s = [*pauses.when_s, pauses.when_s[-1] + _LATER_S]
    correlation = np.exp(-np.abs(np.subtract.outer(when_s, when_s)) / memory_s)
    root = np.linalg.cholesky(correlation + 1e-9 * np.eye(len(when_s)))
    held, widths = [], []
    for seed in range(boards):
        rng = np.random.default_rng(seed)
        speed = root @ rng.standard_normal(len(when_s))
        own = rng.standard_normal((len(when_s), len(base_s)))
        *sittings, later = base_s * np.exp(_SPEED * speed[:, None] + _OWN * own)
        names = [f"{number // pauses.in_each}" if by_pauses else None for number in range(len(own))]
        watched = [
            WatchedSitting(
                schedule="unscheduled",
                steps=10,
                measured="",
                pause=pause,
                op_s=dict(zip((op.name for op in step.ops), times_s.tolist(), strict=True)),
            )
            for times_s, pause in zip(sittings, names, strict=False)
        ]
        time_s = _predicted(step, board, watched)
        held.append(time_s.low <= float(later.sum()) <= time_s.high)
        widths.append((time_s.high - time_s.low) / 2 / time_s.median)
    return Held(float(np.mean(held)), float(np.mean(widths)))


def _exact(interval: Interval) -> Interval:
    return Interval.exact(interval.median)


def _predicted(step: TrainingStep, board: DeviceProfile, watched: list[WatchedSitting]) -> Interval:
    """Seconds of the step that computes every op once."""
    costs = step_costs(board, _NETWORK, step.cost_keys, watched)
    graph = cost_graph(step, with_step_costs(board, costs)).graph
    actions = [Compute(op=name) for name in graph.order]
    return expected_step(graph, scheduled(graph, actions)).time_s


def pauses_page(boards: int) -> Page:
    """The page, from so many boards for each row."""
    rows = []
    for memory_s in _MEMORIES_S:
        for plan in _PLANS:
            by_pauses = simulate(plan, memory_s, boards)
            independent = simulate(plan, memory_s, boards, by_pauses=False)
            sittings = f"{plan.count} × {plan.in_each}"
            apart = f"{plan.apart_s:g} s" if plan.count > 1 else "–"
            rows.append(
                (
                    *(f"{memory_s:g} s", sittings, apart),
                    *(f"{by_pauses.share:.1%}", f"±{by_pauses.half_width:.1%}"),
                    *(f"{independent.share:.1%}", f"±{independent.half_width:.1%}"),
                )
            )
            report_progress(" | ".join(rows[-1]))
    head = (
        *("memory", "pauses × sittings", "apart", "held, by pauses", "width"),
        *("held, as independent", "width "),
    )
    error = math.sqrt(0.95 * 0.05 / boards)
    note = (
        f"{boards} boards for each row: the standard error of 95 % is {error:.1%}. Sittings of a"
        " single pause are taken to be independent in either way."
    )
    return Page(
        "Sittings in pauses", _TEXT, [Table(head, rows, note=note)], [package_version("numpy")]
    )


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--boards", type=int, default=400, help="boards for each row (400)")
    publish("benchmarks.pauses", parser, lambda arguments: pauses_page(arguments.boards))


if __name__ == "__main__":
    main()

"""Costs drawn from the intervals of a graph.

A cost with median m and 95 % interval from l to h is modelled as split log-normal: above the median
it is m · (h/m)^(z/1.96), below it m · (l/m)^(-z/1.96), with z standard normal. Its median is m,
2.5 % of it are below l and 2.5 % above h, and it is never negative. A log-normal does not reach an
end at zero; that half is normal instead, cut off at zero.

One z is drawn for each measurement: ops with the same ``cost_key`` share it. So do all page-ins of
a graph, and all page-outs, whose costs come from one fit each. Any two of these z have the graph's
``error_correlation`` ρ: each is √ρ · z₀ + √(1 - ρ) · ε, with one z₀ for the draw and an ε of its
own. They are independent if the graph states none. Time and energy have the same z₀ and ε, and so
the same z, unless the graph states another ρ for joules (``energy_error_correlation``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from devices.errors import InputError
from solver.problem.graph import CostedGraph, Op, PageCost
from solver.problem.schedule import Action, Compute, PageIn, PageOut

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]

# 97.5 % quantile of the standard normal distribution.
_END = 1.959963984540054


# Most costs of all draws: a gigabyte or two while they are drawn.
_MOST_DRAWN = 30_000_000


class NoDrawsError(InputError):
    """The costs of a graph cannot be drawn; the message says what would help."""


@dataclass(frozen=True)
class Items:
    """The items that a schedule pays for: each op, each page-out, each page-in, in this order.

    Cost vectors and counts have one entry for each item; a cost that does not exist is 0.
    """

    graph: CostedGraph

    @property
    def op_count(self) -> int:
        return len(self.graph.ops)

    @cached_property
    def op_index(self) -> Mapping[str, int]:
        """Index of each op's item."""
        return {op.name: index for index, op in enumerate(self.graph.ops)}

    @cached_property
    def out_index(self) -> Mapping[str, int]:
        """Index of the item of each tensor's page-out."""
        return {t.name: self.op_count + index for index, t in enumerate(self.graph.tensors)}

    @cached_property
    def in_index(self) -> Mapping[str, int]:
        """Index of the item of each tensor's page-in."""
        count = len(self.graph.tensors)
        return {name: count + index for name, index in self.out_index.items()}

    def counts(self, actions: Sequence[Action]) -> FloatArray:
        """Number of times that a schedule pays for each item."""
        found = np.zeros(self.op_count + 2 * len(self.graph.tensors))
        for action in actions:
            match action:
                case Compute():
                    found[self.op_index[action.op]] += 1
                case PageOut():
                    found[self.out_index[action.tensor]] += 1
                case PageIn():
                    found[self.in_index[action.tensor]] += 1
        return found

    def costs(self) -> tuple[FloatArray, FloatArray]:
        """Energy (J) and time (s) of each item in the graph."""
        priced = _priced(self.graph)
        return (
            np.array([0.0 if cost is None else cost.energy_j for cost in priced]),
            np.array([0.0 if cost is None else cost.time_s for cost in priced]),
        )

    def graph_at(self, energy_j: FloatArray, time_s: FloatArray) -> CostedGraph:
        """The graph with other costs, which have no intervals."""
        pairs = [
            {"energy_j": e, "time_s": t, "energy_j_interval": None, "time_s_interval": None}
            for e, t in zip(energy_j.tolist(), time_s.tolist(), strict=True)
        ]
        graph = self.graph
        n, m = len(graph.ops), len(graph.tensors)
        ops = [op.model_copy(update=pair) for op, pair in zip(graph.ops, pairs[:n], strict=True)]
        tensors = [
            tensor.model_copy(
                update={
                    "page_out": tensor.page_out and tensor.page_out.model_copy(update=out),
                    "page_in": tensor.page_in and tensor.page_in.model_copy(update=back),
                }
            )
            for tensor, out, back in zip(
                graph.tensors, pairs[n : n + m], pairs[n + m :], strict=True
            )
        ]
        # Not model_copy, which would copy cached properties of the old costs.
        kept = {
            name: getattr(graph, name) for name in CostedGraph.model_fields if name != "schema_"
        }
        return CostedGraph.model_validate({**kept, "ops": ops, "tensors": tensors})


@dataclass(frozen=True)
class CostDraws:
    """Drawn costs: ``energy_j`` and ``time_s`` have a row for each draw, a column for each item."""

    items: Items
    energy_j: FloatArray
    time_s: FloatArray


def draw_costs(graph: CostedGraph, draws: int, seed: int) -> CostDraws:
    """Draw costs from the intervals of a graph.

    Args:
        graph: The costed graph.
        draws: Number of draws.
        seed: Seed of the draws. The same seed gives the same draws, and a larger number of draws
            begins with those of a smaller number.

    Returns:
        The drawn costs.

    Raises:
        NoDrawsError: No cost in the graph has an interval, or so many draws need too much memory.
    """
    priced = _priced(graph)
    if not any(cost and (cost.energy_j_interval or cost.time_s_interval) for cost in priced):
        raise NoDrawsError(
            f"{graph.name}: no cost in this graph has an interval to draw from; use a profile"
            " measured with two blocks or more (published rates have no intervals)"
        )
    most = _MOST_DRAWN // len(priced)
    if draws > most:
        raise NoDrawsError(
            f"{graph.name}: {draws} draws of its {len(priced)} costs need too much memory; at most"
            f" {most} are allowed"
        )
    sources: dict[tuple[str, str], int] = {}
    source_of = [sources.setdefault(source, len(sources)) for source in _sources(graph)]
    z_j, z_s = (
        _correlated(draws, len(sources), correlation, seed)[:, source_of]
        for correlation in (graph.correlation_of_energies, graph.correlation_of_times)
    )
    energies = [(c.energy_j, c.energy_j_interval) if c else (0.0, None) for c in priced]
    times = [(c.time_s, c.time_s_interval) if c else (0.0, None) for c in priced]
    return CostDraws(Items(graph), _split_log_normal(energies, z_j), _split_log_normal(times, z_s))


def _priced(graph: CostedGraph) -> list[Op | PageCost | None]:
    """Cost of each item; None for a transfer that is not possible."""
    page_outs = [tensor.page_out for tensor in graph.tensors]
    page_ins = [tensor.page_in for tensor in graph.tensors]
    return [*graph.ops, *page_outs, *page_ins]


def _sources(graph: CostedGraph) -> list[tuple[str, str]]:
    """The measurement that each item's cost comes from."""
    ops = [("op", op.name) if op.cost_key is None else ("key", op.cost_key) for op in graph.ops]
    paging = [("storage", way) for way in ("write", "read") for _ in graph.tensors]
    return [*ops, *paging]


def _correlated(draws: int, sources: int, correlation: float, seed: int) -> FloatArray:
    """Standard normals with a correlation between columns: a row for each draw."""
    own = np.random.default_rng(seed).standard_normal((draws, sources))
    # A generator of its own, so that what a larger number of draws begins with stays the same.
    common = np.random.default_rng((seed, 1)).standard_normal((draws, 1))
    z: FloatArray = math.sqrt(correlation) * common + math.sqrt(1.0 - correlation) * own
    return z


def _split_log_normal(
    figures: Sequence[tuple[float, tuple[float, float] | None]], z: FloatArray
) -> FloatArray:
    """Costs at ``z``; ``figures`` are medians and intervals, one for each column of ``z``."""
    median = np.array([figure for figure, _ in figures])
    low = np.array([min(figure, ends[0]) if ends else figure for figure, ends in figures])
    high = np.array([max(figure, ends[1]) if ends else figure for figure, ends in figures])
    below, above = np.maximum(-z, 0.0) / _END, np.maximum(z, 0.0) / _END
    # Non-positive ends fall back to a half-normal.
    positive_low, positive_median = low > 0, median > 0
    log_below = np.log(np.where(positive_low, low, 1.0) / np.where(positive_low, median, 1.0))
    log_above = np.log(
        np.where(positive_median, high, 1.0) / np.where(positive_median, median, 1.0)
    )
    shrunk = np.where(positive_low, np.exp(below * log_below), np.maximum(0.0, 1.0 - below))
    grown: FloatArray = np.where(
        positive_median, median * shrunk * np.exp(above * log_above), above * high
    )
    return grown

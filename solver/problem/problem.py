"""``Problem``: the scheduling problem by index, as all search methods use it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from solver.problem.footprint import extra_bytes, least_ram_bytes, uncounted_tensors
from solver.problem.graph import CostedGraph, PageCost
from solver.problem.schedule import Budget

# Relative excess over a deadline that rounding explains.
DEADLINE_ROUNDING = 1e-9


@dataclass(frozen=True)
class Problem:
    """A costed graph and a budget; ops and tensors are indices in the graph's order."""

    graph: CostedGraph
    budget: Budget

    @cached_property
    def tensor_index(self) -> dict[str, int]:
        return {tensor.name: index for index, tensor in enumerate(self.graph.tensors)}

    @cached_property
    def size(self) -> list[int]:
        """Bytes of each tensor that count against the budget."""
        uncounted = uncounted_tensors(self.graph, self.budget.covers)
        return [0 if t.name in uncounted else t.bytes for t in self.graph.tensors]

    @cached_property
    def size_of(self) -> dict[str, int]:
        """Bytes of each tensor that count against the budget, by its name."""
        return dict(zip(self.tensor_index, self.size, strict=True))

    @cached_property
    def extra_bytes(self) -> list[int]:
        """Bytes that each op takes beyond the tensors that it reads and writes.

        See :func:`solver.problem.footprint.extra_bytes`.
        """
        return [extra_bytes(op, self.size_of) for op in self.graph.ops]

    @cached_property
    def reads(self) -> list[list[int]]:
        return [[self.tensor_index[n] for n in dict.fromkeys(op.reads)] for op in self.graph.ops]

    @cached_property
    def writes(self) -> list[list[int]]:
        return [[self.tensor_index[n] for n in op.writes] for op in self.graph.ops]

    @cached_property
    def consumes(self) -> list[list[int]]:
        """Tensors that each op writes over in place, and so reads for the last time."""
        return [[self.tensor_index[n] for n in op.in_place.values()] for op in self.graph.ops]

    @cached_property
    def producer(self) -> list[int]:
        """Op that writes each tensor, -1 for a tensor that no op writes."""
        return [self.graph.producer.get(t.name, -1) for t in self.graph.tensors]

    @cached_property
    def readers(self) -> list[tuple[int, ...]]:
        return [self.graph.readers[t.name] for t in self.graph.tensors]

    @cached_property
    def starts_in_ram(self) -> list[bool]:
        return [
            producer < 0 and tensor.home != "storage"
            for producer, tensor in zip(self.producer, self.graph.tensors, strict=True)
        ]

    @cached_property
    def starts_in_storage(self) -> list[bool]:
        return [tensor.home == "storage" for tensor in self.graph.tensors]

    @cached_property
    def can_page_out(self) -> list[bool]:
        return [self.budget.paging and t.page_out is not None for t in self.graph.tensors]

    @cached_property
    def can_page_in(self) -> list[bool]:
        """Whether each tensor has a page-in cost and can have a valid copy in storage.

        A tensor whose home is storage is paged in even if the budget excludes paging.
        """
        return [
            t.page_in is not None and (self.starts_in_storage[i] or self.can_page_out[i])
            for i, t in enumerate(self.graph.tensors)
        ]

    @property
    def overlaps(self) -> bool:
        """Whether transfers take time and can run beside ops."""
        return self.graph.asynchronous_transfers and not self.budget.instantaneous_paging

    @cached_property
    def page_out_due_s(self) -> list[float]:
        """Seconds of the deadline that paging each tensor out takes; 0 if it cannot be paged."""
        return [self._due_s(tensor.page_out) for tensor in self.graph.tensors]

    @cached_property
    def page_in_due_s(self) -> list[float]:
        return [self._due_s(tensor.page_in) for tensor in self.graph.tensors]

    def _due_s(self, cost: PageCost | None) -> float:
        return 0.0 if cost is None or self.budget.instantaneous_paging else cost.time_s

    @cached_property
    def recomputable(self) -> list[bool]:
        return [self.budget.rematerialization and op.recomputable for op in self.graph.ops]

    @cached_property
    def latest_s(self) -> float | None:
        """The deadline with the rounding that the referee allows: sums of doubles differ."""
        deadline_s = self.budget.deadline_s
        return None if deadline_s is None else deadline_s * (1 + DEADLINE_ROUNDING)

    @cached_property
    def is_evidently_infeasible(self) -> bool:
        """Whether the budget is below a bound on RAM or time that needs no search."""
        least_bytes, _ = least_ram_bytes(self.graph, self.budget.covers)
        return self.is_evidently_late or self.budget.ram_bytes < least_bytes

    @cached_property
    def is_evidently_late(self) -> bool:
        """Whether what every schedule does takes longer than the deadline."""
        return self.latest_s is not None and self.latest_s < self.unavoidable_time_s

    @cached_property
    def must_page_out(self) -> list[bool]:
        """Whether the step must write each tensor to storage, where it is not yet."""
        return [t.persist == "storage" and t.home != "storage" for t in self.graph.tensors]

    @cached_property
    def unavoidable_pages(self) -> PageCost:
        """Cost of the transfers that every schedule makes.

        These are one page-in of each tensor that is read and whose home is storage, and one
        page-out of each tensor that must be in storage when the step ends.
        """
        return _sum(self._unavoidable_transfers)

    @cached_property
    def _unavoidable_transfers(self) -> tuple[PageCost, ...]:
        costs = []
        for i, tensor in enumerate(self.graph.tensors):
            if self.starts_in_storage[i] and (self.readers[i] or tensor.persist == "ram"):
                costs.append(tensor.page_in)
            if self.must_page_out[i]:
                costs.append(tensor.page_out)
        return _known(costs)

    @cached_property
    def unavoidable_working_s(self) -> float:
        """Seconds of the processor for the transfers that every schedule makes, beside ops."""
        return self._working_s(self._unavoidable_transfers)

    def paging_cost(self, i: int) -> PageCost:
        """Cost of paging tensor ``i`` in once, with the page-out if that is not unavoidable."""
        return _sum(self._paging_transfers(i))

    def paging_working_s(self, i: int) -> float:
        """Seconds of the processor for the same transfers, beside ops."""
        return self._working_s(self._paging_transfers(i))

    def _paging_transfers(self, i: int) -> tuple[PageCost, ...]:
        tensor = self.graph.tensors[i]
        there = self.starts_in_storage[i] or self.must_page_out[i]
        return _known([tensor.page_in] if there else [tensor.page_in, tensor.page_out])

    @cached_property
    def share_of_transfers(self) -> float:
        """Share of the processor's time in that of one transfer of each kind of each tensor."""
        costs = _known([cost for t in self.graph.tensors for cost in (t.page_in, t.page_out)])
        transfers_s = _sum(costs).time_s
        return self._working_s(costs) / transfers_s if transfers_s > 0 else 0.0

    def _working_s(self, transfers: Sequence[PageCost]) -> float:
        return math.fsum(self.graph.processor_time_s(cost.time_s) for cost in transfers)

    @cached_property
    def least_energy_j(self) -> float:
        """Energy of computing every op once, a lower bound for every schedule."""
        return math.fsum(op.energy_j for op in self.graph.ops)

    @cached_property
    def unavoidable_energy_j(self) -> float:
        """Energy of what every schedule does: each op once, and the unavoidable transfers."""
        return self.least_energy_j + self.unavoidable_pages.energy_j

    @cached_property
    def least_time_s(self) -> float:
        """Time of computing every op once, a lower bound for every schedule."""
        return math.fsum(op.time_s for op in self.graph.ops)

    @cached_property
    def unavoidable_time_s(self) -> float:
        """Time of what every schedule does: each op once, and the unavoidable transfers.

        Where transfers run beside ops, one at a time, no step is shorter than the transfers, nor
        than the ops with the processor's time for the transfers.
        """
        if self.budget.instantaneous_paging:
            return self.least_time_s
        transfers_s = self.unavoidable_pages.time_s
        if self.overlaps:
            return max(self.least_time_s + self.unavoidable_working_s, transfers_s)
        return self.least_time_s + transfers_s


def _known(costs: Sequence[PageCost | None]) -> tuple[PageCost, ...]:
    return tuple(cost for cost in costs if cost is not None)


def _sum(costs: Sequence[PageCost]) -> PageCost:
    return PageCost(
        time_s=math.fsum(cost.time_s for cost in costs),
        energy_j=math.fsum(cost.energy_j for cost in costs),
    )

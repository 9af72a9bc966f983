"""The scheduling problem by index: what every formulation starts from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from solver.problem.footprint import extra_bytes, least_ram_bytes, uncounted_tensors
from solver.problem.graph import CostedGraph, PageCost
from solver.problem.schedule import Budget


@dataclass(frozen=True)
class Problem:
    """A costed graph and a budget, with ops and tensors as indices in the graph's order."""

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
        """Bytes of each op beyond the tensors that it reads and writes: its workspace, less what
        tensors written in place share with those that they replace."""
        return [extra_bytes(op, self.size_of) for op in self.graph.ops]

    @cached_property
    def reads(self) -> list[list[int]]:
        return [[self.tensor_index[n] for n in dict.fromkeys(op.reads)] for op in self.graph.ops]

    @cached_property
    def writes(self) -> list[list[int]]:
        return [[self.tensor_index[n] for n in op.writes] for op in self.graph.ops]

    @cached_property
    def consumes(self) -> list[list[int]]:
        """Tensors that each op reads for the last time because it writes over their bytes."""
        return [[self.tensor_index[n] for n in op.in_place.values()] for op in self.graph.ops]

    @cached_property
    def producer(self) -> list[int]:
        """The op that writes each tensor, -1 for those that no op writes."""
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
        """There is a page-in cost, and a way for a valid copy to be in storage. A tensor that lives
        in storage is paged in even where paging is excluded otherwise."""
        return [
            t.page_in is not None and (self.starts_in_storage[i] or self.can_page_out[i])
            for i, t in enumerate(self.graph.tensors)
        ]

    @property
    def overlaps(self) -> bool:
        """Transfers count time, but can run beside ops."""
        return self.graph.asynchronous_transfers and not self.budget.instantaneous_paging

    @cached_property
    def page_out_due_s(self) -> list[float]:
        """Seconds that paging each tensor out counts against the deadline; 0 where it cannot be."""
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
    def is_hopeless(self) -> bool:
        """Below what any schedule needs, seen without search."""
        deadline_s = self.budget.deadline_s
        late = deadline_s is not None and deadline_s < self.least_time_s
        least_bytes, _ = least_ram_bytes(self.graph, self.budget.covers)
        return late or self.budget.ram_bytes < least_bytes

    @cached_property
    def must_page_out(self) -> list[bool]:
        """The step must leave a copy in storage that is not there from the beginning."""
        return [t.persist == "storage" and t.home != "storage" for t in self.graph.tensors]

    @cached_property
    def unavoidable_pages(self) -> PageCost:
        """Of paging in once what lives in storage and is read, and of paging out what must be there
        in the end."""
        costs = []
        for i, tensor in enumerate(self.graph.tensors):
            if self.starts_in_storage[i] and (self.readers[i] or tensor.persist == "ram"):
                costs.append(tensor.page_in)
            if self.must_page_out[i]:
                costs.append(tensor.page_out)
        return _sum(costs)

    def paging_cost(self, i: int) -> PageCost:
        """Of having tensor ``i`` back from storage once, beyond what is unavoidable."""
        tensor = self.graph.tensors[i]
        there = self.starts_in_storage[i] or self.must_page_out[i]
        return _sum([tensor.page_in] if there else [tensor.page_in, tensor.page_out])

    @cached_property
    def least_energy_j(self) -> float:
        """Of computing every op once: no schedule uses less."""
        return math.fsum(op.energy_j for op in self.graph.ops)

    @cached_property
    def least_time_s(self) -> float:
        return math.fsum(op.time_s for op in self.graph.ops)


def _sum(costs: Sequence[PageCost | None]) -> PageCost:
    known = [cost for cost in costs if cost is not None]
    return PageCost(
        time_s=math.fsum(cost.time_s for cost in known),
        energy_j=math.fsum(cost.energy_j for cost in known),
    )

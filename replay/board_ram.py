"""RAM of a microcontroller, shared by a schedule's arena and the firmware's records of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from devices.profile import DeviceProfile
from networks.training.step import TrainingStep
from profiler.building.plan_memory import (
    CHECKSUM_BYTES,
    least_firmware_ram_bytes,
    profiled_ram_bytes,
)
from replay.lowering.lowering import LoweringError, lower
from replay.runs import planned_workspace
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Budget, Schedule
from solver.requests.subjects import SolveSubject
from solver.solving.shared_ram import RamUse

_BUFFERS = 8192
"""RAM for buffers, with room to spare."""


@dataclass(frozen=True)
class BoardRam:
    """The RAM of a profiled board for schedules of a step, whose graph has its costs from there.

    It is a :class:`~solver.solving.shared_ram.SharedRam`.
    """

    step: TrainingStep
    graph: CostedGraph
    profile: DeviceProfile

    @classmethod
    def of(cls, subject: SolveSubject) -> Self | None:
        """The RAM of a subject's board; None where nothing but the arena counts.

        That is so on a Linux board, and for a graph without a board.
        """
        profile, step = subject.profile, subject.step
        if profile is None or step is None or not profile.board.shares_ram:
            return None
        return cls(step, subject.graph, profile)

    @property
    def largest_arena_bytes(self) -> int:
        """Largest arena beside the fewest records: no schedule with a larger one can run."""
        return self.profile.board.usable_bytes - least_firmware_ram_bytes(len(self.graph.ops))

    def has_room(self, budget: Budget) -> bool:
        """Whether a schedule of the budget fits with its records if each tensor is paged once."""
        slots = 2 * len(self.graph.tensors)
        needed = budget.ram_bytes + slots * CHECKSUM_BYTES + _BUFFERS
        return budget.covers == "all" and needed <= self.profile.board.usable_bytes

    def use(self, schedule: Schedule) -> RamUse | None:
        """RAM that a schedule takes; None for one that no board can run.

        Such are schedules without addresses.
        """
        if not schedule.actions:
            return None
        workspace = planned_workspace(self.step, self.graph)
        try:
            plan = lower(self.step, self.graph, schedule, workspace)
        except LoweringError:
            return None
        records_bytes = profiled_ram_bytes(plan, self.profile)
        return RamUse(plan.arena_bytes, records_bytes, self.profile.board.usable_bytes)

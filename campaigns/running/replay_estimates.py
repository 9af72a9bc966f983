"""Estimates of a replay of a cell: of its schedule, or of its step while none is known."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, takewhile
from statistics import fmean

from campaigns.design.cells import Cell, Design
from campaigns.design.settings import Setting
from campaigns.keeping.directory import CampaignDirectory, FilesOfCells, has_replay, is_solved
from campaigns.keeping.records import ReplayPlace, SolvedCell
from campaigns.running.estimates import StepEstimate, estimate_step, may_page
from devices.errors import JoulewrightError
from devices.profile import DeviceProfile
from profiler.building.store_layout import StoreLayout, store_layout
from replay.runs import (
    Subject,
    planned_execution,
    training_step_of,
    written_bytes_of_replay,
)

_OVERHEAD_S = 10.0  # of a replay: compiling, connecting, copying
_GUARDED_STEPS = 2


@dataclass(frozen=True)
class ReplayEstimate:
    """One replay.

    ``energy_j`` is None where nothing tells the power. It writes at most ``written_bytes`` to
    storage if nothing fails: with its steps, the values that they begin with, and a file that it
    fills. ``unknown_step_bytes`` is the most that a step writes if its schedule is still to be
    found; else 0.
    """

    time_s: float
    energy_j: float | None
    written_bytes: int
    unknown_step_bytes: int

    @classmethod
    def dearest(cls, estimates: Collection[ReplayEstimate]) -> ReplayEstimate:
        """The most that one of several replays takes; each figure may be that of another one."""
        energies_j = [each.energy_j for each in estimates if each.energy_j is not None]
        return cls(
            time_s=max(each.time_s for each in estimates),
            energy_j=max(energies_j) if len(energies_j) == len(estimates) else None,
            written_bytes=max(each.written_bytes for each in estimates),
            unknown_step_bytes=max(each.unknown_step_bytes for each in estimates),
        )


@dataclass(frozen=True)
class ReplayEstimates:
    """Estimates of replays on a board under a condition, each made once.

    A schedule that is not known yet counts as the step with nothing recomputed or paged, and as one
    that pages every tensor out once. ``profile`` is None before the board is measured.
    """

    design: Design
    setting: Setting
    profile: DeviceProfile | None
    directory: CampaignDirectory
    files: FilesOfCells
    _steps: dict[Hashable, StepEstimate] = field(default_factory=dict, init=False)
    _replays: dict[str, ReplayEstimate] = field(default_factory=dict, init=False)

    def of(self, cell: Cell) -> ReplayEstimate:
        """Estimate a replay of a cell.

        Raises:
            InputError: The network cannot be built, or the profile does not cover it.
            DocumentError: A file of the campaign is damaged.
        """
        if cell.hash not in self._replays:
            self._replays[cell.hash] = self._estimate(cell)
        return self._replays[cell.hash]

    def _estimate(self, cell: Cell) -> ReplayEstimate:
        is_known = is_solved(self.files.get(cell.hash, frozenset()))
        solved = self.directory.solved(cell) if is_known else None
        step = self._unscheduled(cell) if solved is None else self._scheduled(solved)
        description, steps = self.setting.description, self.design.steps
        assert description is not None, "a profile in place of a board runs no step"
        all_steps = 4 * steps + _GUARDED_STEPS
        written_bytes = unknown_step_bytes = 0
        if step.layout is not None:
            written_bytes = written_bytes_of_replay(step.layout, description, steps)
            unknown_step_bytes = step.layout.written_bytes if solved is None else 0
        return ReplayEstimate(
            time_s=self._measured_s(cell) or _OVERHEAD_S + all_steps * step.time_s,
            energy_j=None if step.energy_j is None else all_steps * step.energy_j,
            written_bytes=written_bytes,
            unknown_step_bytes=unknown_step_bytes,
        )

    def _unscheduled(self, cell: Cell) -> StepEstimate:
        """The step of a cell whose schedule is not known."""
        method = self.design.method_by_name[cell.method]
        key = cell.network, cell.batch, method.slices, method.codecs
        if key not in self._steps:
            self._steps[key] = estimate_step(self.design, cell, self.setting, self.profile)
        home = self.design.network_by_name[cell.network].choice.parameters_in
        step = self._steps[key]
        return step if may_page(method, home) else replace(step, layout=None)

    def _scheduled(self, solved: SolvedCell) -> StepEstimate:
        """The step of a schedule."""
        assert solved.time_s is not None, "only a schedule is run"
        return StepEstimate(solved.time_s, solved.energy_j, self._layout(solved))

    def _layout(self, solved: SolvedCell) -> StoreLayout | None:
        """Layout of a schedule's steps in storage; None if it does not page, or cannot run."""
        description = self.setting.description
        if description is None or description.storage is None:
            return None
        if not solved.page_outs and not solved.page_ins:
            return None
        graph, schedule = self.directory.schedule(solved.cell)
        try:
            subject = Subject(description, training_step_of(graph), graph, schedule)
            return store_layout(planned_execution(subject), description.storage)
        except JoulewrightError:  # such as a plan that does not fit, which the run will report
            return None

    def _measured_s(self, cell: Cell) -> float | None:
        """Mean time of the cell's finished replays; None if there is none."""
        names = self.files.get(cell.hash, frozenset())
        found = []
        for place in takewhile(partial(has_replay, names), map(_place, count())):
            repetition = self.directory.repetition(cell, place)
            if repetition is not None:
                found.append(repetition.circumstances.seconds)
        return fmean(found) if found else None


def _place(repetition: int) -> ReplayPlace:
    return ReplayPlace(repetition=repetition)

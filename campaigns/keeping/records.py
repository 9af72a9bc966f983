"""Records of a campaign's cells: what was solved, each replay, and what failed."""

from __future__ import annotations

import os
import platform
import socket
import time
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field

from campaigns.design.cells import Cell
from campaigns.design.file import Word
from devices.documents.document import StrictModel
from devices.profile import BoardIdentity, Build, EnergySource, Interval, MeterRecord
from devices.program import program_version
from devices.quantities import Count, Label, NonNegative, Size, WholeNumber
from devices.replay import Comparison, MemoryUse, ReplayReport
from solver.options import Coverage
from solver.problem.graph import CostedGraph
from solver.problem.quantities import parse_ram_bytes
from solver.problem.schedule import PageIn, PageOut, Schedule, Status
from solver.referee.referee import replay

Phase: TypeAlias = Literal["profile", "solve", "run"]


class Circumstances(StrictModel):
    """When and where something was computed or measured from.

    ``host`` is the computer that ran the campaign, ``load`` its load average (1 min) at the start.
    """

    started: str
    seconds: NonNegative
    host: str
    program: str
    python: str
    load: NonNegative

    @classmethod
    def since(cls, began: Beginning) -> Self:
        """Circumstances of what began at ``began`` and ends now."""
        return cls(
            started=began.started,
            seconds=time.monotonic() - began.monotonic_s,
            host=socket.gethostname(),
            program=program_version(),
            python=platform.python_version(),
            load=began.load,
        )


class Beginning:
    """The moment at which it is created, with the load of this computer then."""

    def __init__(self) -> None:
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self.monotonic_s = time.monotonic()
        self.load = os.getloadavg()[0]


@dataclass(frozen=True)
class AskedOfCell:
    """Fields of a :class:`SolvedCell` that do not follow from its schedule and graph.

    ``ram_bytes`` is the budget that was asked for.
    """

    cell: Cell
    profile: str | None
    ram_bytes: int
    unconstrained_peak_bytes: int
    unconstrained_energy_j: float
    unconstrained_time_s: float
    predicted_operations: int


class SolvedCell(StrictModel):
    """What a cell's method found (``campaign-cell/1``).

    ``profile`` is the file of the profile, relative to the campaign's directory; absent if the
    profile is that of the setting. ``ram_bytes`` and ``deadline_s`` are what the cell's words mean
    for its graph; less RAM where the records that a firmware keeps of a schedule leave less of it,
    which the note says. ``unconstrained_*`` belong to the step that keeps everything. A baseline
    counts RAM as a sum of bytes, so that its ``arena_bytes`` may exceed ``ram_bytes``.
    ``predicted_operations`` were not measured; their costs are predicted from others.
    """

    schema_: Annotated[Literal["campaign-cell/1"], Field(alias="schema")] = "campaign-cell/1"
    cell: Cell
    graph: Label
    graph_sha256: str
    profile: Word | None = None
    energy_source: EnergySource | None = None
    ram_bytes: Size
    covers: Coverage
    deadline_s: NonNegative | None = None
    unconstrained_peak_bytes: Size
    unconstrained_energy_j: NonNegative
    unconstrained_time_s: NonNegative
    predicted_operations: Size = 0
    status: Status
    energy_j: NonNegative | None = None
    energy_bound_j: NonNegative | None = None
    any_order_bound_j: NonNegative | None = None
    gap: NonNegative | None = None
    time_s: NonNegative | None = None
    peak_bytes: Size | None = None
    arena_bytes: Size | None = None
    bytes_written_to_storage: Size | None = None
    recomputations: Size | None = None
    page_outs: Size | None = None
    page_ins: Size | None = None
    smallest_ram_bytes: Size | None = None
    note: str | None = None
    circumstances: Circumstances

    @classmethod
    def of(
        cls,
        asked: AskedOfCell,
        graph: CostedGraph,
        schedule: Schedule,
        circumstances: Circumstances,
    ) -> Self:
        """The record of a schedule."""
        actions, budget = schedule.actions, schedule.budget
        moments = replay(graph, actions, budget.covers).moments if actions else ()
        return cls(
            cell=asked.cell,
            graph=graph.name,
            graph_sha256=graph.sha256,
            profile=asked.profile,
            energy_source=graph.energy_source,
            ram_bytes=min(asked.ram_bytes, budget.ram_bytes),
            covers=budget.covers,
            deadline_s=budget.deadline_s,
            unconstrained_peak_bytes=asked.unconstrained_peak_bytes,
            unconstrained_energy_j=asked.unconstrained_energy_j,
            unconstrained_time_s=asked.unconstrained_time_s,
            predicted_operations=asked.predicted_operations,
            status=schedule.status,
            energy_j=schedule.energy_j,
            energy_bound_j=schedule.energy_bound_j,
            any_order_bound_j=schedule.any_order_bound_j,
            gap=schedule.gap,
            time_s=schedule.time_s,
            peak_bytes=schedule.peak_bytes,
            arena_bytes=schedule.arena_bytes,
            bytes_written_to_storage=schedule.bytes_written_to_storage,
            recomputations=sum(moment.recomputation for moment in moments) if actions else None,
            page_outs=sum(isinstance(each, PageOut) for each in actions) if actions else None,
            page_ins=sum(isinstance(each, PageIn) for each in actions) if actions else None,
            smallest_ram_bytes=schedule.smallest_ram_bytes,
            note="; ".join(schedule.notes) or None,
            circumstances=circumstances,
        )

    @property
    def asked_ram_bytes(self) -> int:
        """The cell's RAM budget in bytes, with what a firmware's records take of it.

        A share is of the peak of the step as the method takes it, in slices for example.
        """
        return parse_ram_bytes(self.cell.ram_budget, self.unconstrained_peak_bytes)

    @property
    def asked(self) -> AskedOfCell:
        """The fields that do not follow from the schedule and its graph."""
        return AskedOfCell(**{each.name: getattr(self, each.name) for each in fields(AskedOfCell)})

    @property
    def has_schedule(self) -> bool:
        """Whether the method found a schedule."""
        return self.energy_j is not None


class Repetition(StrictModel):
    """One replay of a cell's schedule (``campaign-repetition/1``).

    ``number`` counts from 0. ``position`` is the place in the order in which the repetition ran all
    replays of its board. A ``control`` is a second replay of the same schedule in the same
    repetition: between the two, nothing differs. ``attempt`` counts from 1. The figures are those
    of the report, which the file beside this one has in full.
    """

    schema_: Annotated[Literal["campaign-repetition/1"], Field(alias="schema")] = (
        "campaign-repetition/1"
    )
    cell: Cell
    number: WholeNumber
    control: bool = False
    position: WholeNumber
    attempt: Count = 1
    board: BoardIdentity
    build: Build
    meter: MeterRecord | None = None
    measured_energy_source: EnergySource | None = None
    steps: Count
    time_s: Comparison
    energy_j: Comparison | None = None
    unscheduled_s: Interval | None = None
    memory: MemoryUse
    written_bytes: NonNegative | None = None
    values_identical: bool
    values_compared: bool
    limits: tuple[str, ...] = ()
    circumstances: Circumstances

    @classmethod
    def of(
        cls,
        cell: Cell,
        place: ReplayPlace,
        report: ReplayReport,
        circumstances: Circumstances,
        *,
        attempt: int,
    ) -> Self:
        """The record of a report."""
        return cls(
            cell=cell,
            number=place.repetition,
            control=place.control,
            position=place.position,
            attempt=attempt,
            board=report.board,
            build=report.build,
            meter=report.meter,
            measured_energy_source=report.measured_energy_source,
            steps=report.steps,
            time_s=report.time_s,
            energy_j=report.energy_j,
            unscheduled_s=report.unscheduled_s,
            memory=report.memory,
            written_bytes=None if report.storage is None else report.storage.written_bytes.measured,
            values_identical=all(check.identical for check in report.values),
            values_compared=bool(report.values),
            limits=report.limits,
            circumstances=circumstances,
        )


class ReplayPlace(StrictModel):
    """Which replay of a cell: repetition, whether it is the control, and its place in the order."""

    repetition: WholeNumber
    control: bool = False
    position: WholeNumber = 0

    @property
    def stem(self) -> str:
        """Stem of the names of its files."""
        return f"{'control' if self.control else 'repetition'}-{self.repetition}"


class Failure(StrictModel):
    """A failed attempt.

    ``exit_code`` is the one that the command of the phase would end with. ``is_last``: the campaign
    gave up on it; a later call of ``campaign run`` tries it again.
    """

    phase: Phase
    replay: ReplayPlace | None = None
    reason: str
    exit_code: int
    is_last: bool
    circumstances: Circumstances


class Failures(StrictModel):
    """Failed attempts of a cell, or of the profile of a board (``campaign-failures/1``).

    After the first ``mended`` of them, the profile was made.
    """

    schema_: Annotated[Literal["campaign-failures/1"], Field(alias="schema")] = (
        "campaign-failures/1"
    )
    of: str
    failures: tuple[Failure, ...]
    mended: Size = 0

"""ReplayReport (``replay/1``): a schedule that was run on a board, held against what was expected;
and the two sides that it joins, what each action of the schedule should take and what it took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from devices.documents.document import StrictModel
from devices.operation import Phase
from devices.plan import Observed
from devices.profile import BoardIdentity, Build, EnergySource, Interval, MeterRecord
from devices.quantities import Count, NonNegative, Size
from devices.wear import Wear

Activity: TypeAlias = Literal["compute", "recompute", "page_out", "page_in"]
OtherActivity: TypeAlias = Literal["move", "probe", "wait", "between"]
Reference: TypeAlias = Literal[
    "the unscheduled step on the board",
    "the same plan on this computer",
    "the unscheduled step on this computer",
]

# Floats of the board have 24 bits; what differs by less is the same.
_SAME = 1e-6


# --- what is expected -------------------------------------------------------------------------


class ScheduledAction(StrictModel):
    """An action of the schedule that takes time; ``schedule_index`` is its place there. ``label``
    is an op or a tensor; ``kind`` and ``phase`` are an op's.

    An ``asynchronous`` transfer runs beside the actions after it. Actions with one ``cost_key``
    share one measured figure, and so its error: the key of an operation, or ``storage.read`` and
    ``storage.write``."""

    # ``replay/1`` has called it so since before the entries of a schedule were called actions.
    schedule_index: Annotated[Size, Field(alias="step")]
    label: str
    what: Activity
    cost_key: str
    kind: str | None = None
    phase: Phase | None = None
    asynchronous: bool = False


class ExpectedAction(ScheduledAction):
    """``start_s`` and ``time_s`` of a transfer are those of its bytes."""

    start_s: NonNegative
    time_s: Interval
    energy_j: Interval


class ExpectedStep(StrictModel):
    """One training step as a schedule has it. ``waited_s`` of ``time_s`` the processor waits for
    transfers. ``arena_bytes`` is absent as long as nothing has an address."""

    graph: str
    energy_source: EnergySource | None
    time_s: Interval
    energy_j: Interval
    waited_s: NonNegative
    budget_bytes: Size
    peak_bytes: Size
    arena_bytes: Size | None
    actions: tuple[ExpectedAction, ...]


# --- what was measured ------------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """Of one action, in seconds from the step's begin; of a transfer, from its own begin to its own
    end."""

    start_s: float
    time_s: float


@dataclass(frozen=True)
class MeasuredStep:
    """``spans`` has one entry for each action of the plan, ``afterwards`` behind the others, and
    ``checksums`` one for each of its probes; both are empty for a step that nobody watched.
    ``energy_j`` is None where no meter saw enough of it."""

    time_s: float
    energy_j: float | None = None
    spans: tuple[Span, ...] = ()
    checksums: tuple[int, ...] = ()


@dataclass(frozen=True)
class Counters:
    """Over ``steps``; of storage whole pages, records and safety copies included."""

    steps: int
    bytes_in: int
    bytes_out: int
    erased_blocks: int
    touched_bytes: int


class ProcessMemory(StrictModel):
    """Of the program on a Linux board. ``limit_bytes`` is what the kernel grants it at most,
    ``overhead_bytes`` of that are not the arena; ``peak_resident_bytes`` is what it had in RAM."""

    peak_resident_bytes: Size
    limit: Literal["address space"]
    limit_bytes: Size
    overhead_bytes: Size


class PowerSamples(StrictModel):
    """What a meter read during steps that follow each other: ``power_w`` at ``time_s``, in seconds
    from the begin of the first one, as are ``step_starts_s``; ``step_times_s`` is how long each
    took."""

    time_s: tuple[float, ...]
    power_w: tuple[float, ...]
    step_starts_s: tuple[float, ...]
    step_times_s: tuple[NonNegative, ...]


@dataclass(frozen=True)
class MeasuredReplay:
    """All of a replay that a report is made from. ``memory`` is None on boards without processes,
    ``power`` where no meter took samples; ``energy_source`` where there is neither a meter nor a
    nominal power."""

    board: BoardIdentity
    build: Build
    energy_source: EnergySource | None
    meter: MeterRecord | None
    steps: tuple[MeasuredStep, ...]
    counters: Counters
    memory: ProcessMemory | None = None
    power: PowerSamples | None = None


# --- both ---------------------------------------------------------------------------------------


class Comparison(StrictModel):
    """``difference`` is measured over predicted, less one; None where nothing was predicted.
    ``beyond``: the two 95 % intervals have no value in common."""

    predicted: Interval
    measured: Interval
    difference: float | None = None
    beyond: bool

    @classmethod
    def of(cls, predicted: Interval, measured: Interval) -> Comparison:
        difference = measured.median / predicted.median - 1 if predicted.median else None
        apart = max(predicted.low - measured.high, measured.low - predicted.high)
        return cls(
            predicted=predicted,
            measured=measured,
            difference=difference,
            beyond=apart > _SAME * max(predicted.median, measured.median),
        )

    @property
    def excess(self) -> float:
        """Measured less predicted, in the unit of both."""
        return self.measured.median - self.predicted.median


class StorageCount(StrictModel):
    """Of bytes or blocks a step, ``measured`` being the mean of all steps."""

    predicted: NonNegative
    measured: NonNegative


class ReplayedAction(ScheduledAction):
    """What was expected of an action and what it took; ``share`` of the measured step. ``start_s``
    and ``run_s`` are when it began and how long it took in the one step that stands for all, from
    that step's begin. ``expected_energy_j`` is what was predicted; joules of single ops are too
    small to be measured."""

    time_s: Comparison
    share: NonNegative
    expected_start_s: NonNegative
    expected_energy_j: Interval
    start_s: NonNegative
    run_s: NonNegative


class OtherTime(StrictModel):
    """Time of a step that belongs to no action of the schedule: tensors moved in RAM, checksums
    taken of watched steps, waits for transfers that run beside ops, and what lies ``between``
    actions, the executor's own work. ``count`` of these in a step."""

    what: OtherActivity
    count: Size
    time_s: Comparison


class MemoryUse(StrictModel):
    """``peak_bytes`` is the most that is there at a time, ``arena_bytes`` what that takes with
    addresses; ``touched_bytes`` is how far the arena was written on the board."""

    budget_bytes: Size
    peak_bytes: Size
    arena_bytes: Size
    touched_bytes: Size
    process: ProcessMemory | None = None

    @property
    def as_predicted(self) -> bool:
        return self.touched_bytes == self.arena_bytes


class StorageUse(StrictModel):
    """A step's traffic in whole pages. Of ``written_bytes``, the schedule asks for
    ``scheduled_bytes``; ``safety_bytes`` are copies of what must survive, and the record that says
    that they are complete. ``copies_s`` is what those copies take, behind every step and outside of
    its time and energy; the record is not in it."""

    page_bytes: Size
    read_bytes: StorageCount
    written_bytes: StorageCount
    erased_blocks: StorageCount
    scheduled_bytes: Size
    safety_bytes: Size
    copies_s: Interval
    wear: Wear


class DifferingValue(StrictModel):
    """``steps`` are the numbers of those after which the bits were not the reference's."""

    tensor: str
    what: Observed
    steps: tuple[Size, ...]


class ValueCheck(StrictModel):
    """Checksums of every value that a schedule must preserve, against those of the same steps run
    ``against`` something that schedules nothing."""

    against: Reference
    values: Size
    steps: Size
    differing: tuple[DifferingValue, ...] = ()

    @property
    def identical(self) -> bool:
        return not self.differing


class Responsible(StrictModel):
    """``what`` is a cost key, or that of an :class:`OtherTime`. ``excess_s`` is what all of it took
    more than predicted in a step (less, if negative), ``share`` that of the whole difference,
    negative where it hides some of it."""

    what: str
    labels: tuple[str, ...]
    time_s: Comparison
    excess_s: float
    share: float


class Diagnosis(StrictModel):
    """Why the step took longer or shorter than predicted; nothing is ``responsible`` where the
    intervals allow the difference. ``refine`` are the operations that are worth measuring again."""

    responsible: tuple[Responsible, ...]
    sentences: tuple[str, ...]
    refine: tuple[str, ...]


class ReplayReport(StrictModel):
    """``origin`` says which model, batch and profile the schedule is for, as its graph does.
    ``steps`` were measured, of which ``watched_steps`` action by action. Every figure is worth what
    its source says: ``predicted_energy_source`` is that of the profile, ``measured_energy_source``
    that of the replay (an emulated board's seconds are emulated too). ``energy_j`` is absent where
    no step had an energy. ``limits`` are sentences on what the figures do not say."""

    schema_: Annotated[Literal["replay/1"], Field(alias="schema")] = "replay/1"
    device: str
    board: BoardIdentity
    build: Build
    graph: str
    schedule: str
    origin: Mapping[str, str | int | None]
    created: str
    predicted_energy_source: EnergySource | None = None
    measured_energy_source: EnergySource | None = None
    meter: MeterRecord | None = None
    steps: Count
    watched_steps: Count
    time_s: Comparison
    energy_j: Comparison | None = None
    memory: MemoryUse
    storage: StorageUse | None = None
    actions: tuple[ReplayedAction, ...]
    other: tuple[OtherTime, ...]
    values: tuple[ValueCheck, ...]
    diagnosis: Diagnosis
    power: PowerSamples | None = None
    unscheduled_s: Interval | None = None
    losses: tuple[float | None, ...] = ()
    limits: tuple[str, ...] = ()

    @property
    def board_word(self) -> str:
        """What the board came to is called so: an emulated one measures nothing."""
        return "emulated" if self.measured_energy_source == "emulated" else "measured"

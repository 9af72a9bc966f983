"""ReplayReport (``replay/1``): a schedule's run on a board, compared with its prediction.

The module also holds the two sides that a report joins: the expected and the measured costs of each
action of the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from devices.documents.document import StrictModel
from devices.operation import Phase
from devices.plan import Observed
from devices.profile import BoardIdentity, Build, EnergySource, Interval, MeterRecord
from devices.quantities import MOST, Count, Label, NonNegative, Size
from devices.wear import Wear

Activity: TypeAlias = Literal["compute", "recompute", "page_out", "page_in"]
OtherActivity: TypeAlias = Literal["move", "probe", "rows", "wait", "between"]
OutsideActivity: TypeAlias = Literal["copies", "outside"]
Reference: TypeAlias = Literal[
    "the unscheduled step on the board",
    "the same plan on this computer",
    "the unscheduled step on this computer",
]

# Relative difference below which values are equal: floats of the board have 24 bits.
_SAME = 1e-6


# --- expected ---------------------------------------------------------------------------------


class ScheduledAction(StrictModel):
    """An action of the schedule that takes time, at ``schedule_index`` in it.

    ``label`` names an op or a tensor; ``kind`` and ``phase`` are set for an op. An ``asynchronous``
    transfer runs beside the actions after it. Actions with the same ``cost_key`` share one measured
    cost, and therefore its error: the key of an operation, or ``storage.read`` and
    ``storage.write``.
    """

    # Entries of a schedule were called steps when ``replay/1`` was defined.
    schedule_index: Annotated[Size, Field(alias="step")]
    label: str
    what: Activity
    cost_key: str
    kind: str | None = None
    phase: Phase | None = None
    asynchronous: bool = False


class ExpectedAction(ScheduledAction):
    """Prediction for one action; for a transfer, ``start_s`` and ``time_s`` are of its bytes."""

    start_s: NonNegative
    time_s: Interval
    energy_j: Interval


class ExpectedStep(StrictModel):
    """Prediction for one training step of a schedule.

    The processor waits for transfers that run beside ops, or works for them, during ``waited_s`` of
    ``time_s``. ``arena_bytes`` is None before addresses are assigned.
    """

    graph: str
    energy_source: EnergySource | None
    time_s: Interval
    energy_j: Interval
    waited_s: NonNegative
    budget_bytes: Size
    peak_bytes: Size
    arena_bytes: Size | None
    actions: tuple[ExpectedAction, ...]


# --- measured ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """Time of one action, with its start in seconds from the start of the step.

    The span of a transfer is from its own start to its own end.
    """

    start_s: float
    time_s: float


@dataclass(frozen=True)
class MeasuredStep:
    """Measurements of one training step.

    ``spans`` has an entry for each action of the plan, those of ``afterwards`` last; ``checksums``
    has an entry for each probe. Both are empty for an unwatched step. ``energy_j`` is None if no
    meter measured enough of the step.
    """

    time_s: float
    energy_j: float | None = None
    spans: tuple[Span, ...] = ()
    checksums: tuple[int, ...] = ()


@dataclass(frozen=True)
class Counters:
    """Totals over ``steps``; storage traffic is in whole pages, with records and safety copies.

    ``transfer_ns`` is the processor's time for transfers within steps. It differs between runs that
    transfer the same, and so does not distinguish them.
    """

    steps: int
    bytes_in: int
    bytes_out: int
    erased_blocks: int
    touched_bytes: int
    transfer_ns: int = field(default=0, compare=False)


class ProcessMemory(StrictModel):
    """Memory of the program on a Linux board.

    The kernel grants it at most ``limit_bytes``, of which ``overhead_bytes`` are not the arena.
    ``peak_resident_bytes`` is the most that it had in RAM.
    """

    peak_resident_bytes: Size
    limit: Literal["address space"]
    limit_bytes: Size
    overhead_bytes: Size


class PowerSamples(StrictModel):
    """Samples of a meter during consecutive steps.

    ``power_w`` was read at ``time_s``. ``time_s`` and ``step_starts_s`` are in seconds from the
    start of the first step; ``step_times_s`` are the durations of the steps.
    """

    time_s: tuple[float, ...]
    power_w: tuple[float, ...]
    step_starts_s: tuple[float, ...]
    step_times_s: tuple[NonNegative, ...]


@dataclass(frozen=True)
class StepsTogether:
    """Mean energy of a step over ``steps`` steps, with its 95 % interval."""

    energy_j: Interval
    steps: int


@dataclass(frozen=True)
class MeasuredReplay:
    """All measurements of a replay that its report uses.

    ``memory`` is None on boards without processes, ``power`` if no meter took samples,
    ``energy_source`` without a meter and a nominal power, ``together`` if most steps have energies
    of their own, or steps together have none.
    """

    board: BoardIdentity
    build: Build
    energy_source: EnergySource | None
    meter: MeterRecord | None
    steps: tuple[MeasuredStep, ...]
    counters: Counters
    memory: ProcessMemory | None = None
    power: PowerSamples | None = None
    together: StepsTogether | None = None


# --- compared -----------------------------------------------------------------------------------


class Comparison(StrictModel):
    """A predicted and a measured figure.

    ``difference`` is measured / predicted - 1, None if the predicted median is zero, or too small
    for a quotient. ``beyond``: the two 95 % intervals are disjoint.
    """

    predicted: Interval
    measured: Interval
    difference: float | None = None
    beyond: bool

    @classmethod
    def of(cls, predicted: Interval, measured: Interval) -> Comparison:
        """Compare two intervals in the same unit."""
        ratio = measured.median / predicted.median if predicted.median else math.inf
        apart = max(predicted.low - measured.high, measured.low - predicted.high)
        return cls(
            predicted=predicted,
            measured=measured,
            difference=ratio - 1 if math.isfinite(ratio) else None,
            beyond=apart > _SAME * max(predicted.median, measured.median),
        )

    @property
    def is_held(self) -> bool:
        """Whether the measured median lies in the predicted interval."""
        slack = _SAME * self.predicted.median
        return self.predicted.low - slack <= self.measured.median <= self.predicted.high + slack

    @property
    def excess(self) -> float:
        """Measured minus predicted median, in the figures' unit."""
        return self.measured.median - self.predicted.median


class StorageCount(StrictModel):
    """Bytes or erase blocks per step; ``measured`` is the mean over all steps."""

    predicted: NonNegative
    measured: NonNegative


class ReplayedAction(ScheduledAction):
    """Prediction and measurement of an action.

    ``share`` is its part of the measured step. ``start_s`` and ``run_s`` are its start and duration
    in one representative step, from the start of that step. ``expected_energy_j`` is predicted;
    measured energies are in the report's ``activity_energies``.
    """

    time_s: Comparison
    share: NonNegative
    expected_start_s: NonNegative
    expected_energy_j: Interval
    start_s: NonNegative
    run_s: NonNegative


class OtherTime(StrictModel):
    """Time of a step outside the schedule's actions, with ``count`` occurrences in a step.

    ``move``: tensors moved in RAM; ``probe``: checksums of watched steps; ``wait``: waits for
    transfers that run beside ops; ``between``: the executor's own work between actions.
    """

    what: OtherActivity
    count: Size
    time_s: Comparison


class ActivityEnergy(StrictModel):
    """Mean power of activities, and their energy in a watched step, with 95 % intervals.

    ``activities`` are cost keys, those of transfers beside operations with the suffix
    ``BESIDE``, or names of an :class:`OtherTime` or of time after a step: ``copies`` (safety
    copies) and ``outside`` (until the next step begins). Several could not be told apart, and have
    one mean power; the longest is first. Of a transfer beside operations it is the power on top of
    theirs. ``time_s`` is their mean time in a step.
    """

    activities: tuple[Label, ...]
    time_s: NonNegative
    power_w: Interval
    energy_j: Interval


BESIDE = ", beside operations"


class ActivityEnergies(StrictModel):
    """Energies of the activities of a step, from the readings of many steps.

    The ``readings`` of ``steps`` steps were taken in ``blocks``, from whose differences the
    intervals come. They were ``shift_s`` late on the board's clock; ``condition`` is the condition
    number of the design (:mod:`replay.energy.regression`).
    """

    energy_source: EnergySource
    steps: Count
    blocks: Count
    readings: Count
    shift_s: Annotated[float, Field(ge=-MOST, le=MOST)]
    condition: NonNegative
    activities: tuple[ActivityEnergy, ...]


class MemoryUse(StrictModel):
    """Memory of a step.

    ``peak_bytes`` is the largest sum of tensors in RAM at a time, ``arena_bytes`` the size of the
    arena that holds them at their addresses. ``touched_bytes`` is how far the arena was written on
    the board.
    """

    budget_bytes: Size
    peak_bytes: Size
    arena_bytes: Size
    touched_bytes: Size
    process: ProcessMemory | None = None

    @property
    def as_predicted(self) -> bool:
        """True if the board used exactly the arena."""
        return self.touched_bytes == self.arena_bytes


class StorageUse(StrictModel):
    """Storage traffic of a step, in whole pages.

    ``scheduled_bytes`` of ``written_bytes`` are page-outs of the schedule; ``safety_bytes`` are
    copies of the trained values and the record that marks them as complete. ``copies_s`` is the
    time of these copies after each step, outside the step's time and energy, without the record.
    ``row_bytes`` has the bytes that the rows of a batch take, by table in storage.
    """

    page_bytes: Count
    row_bytes: Mapping[str, Size] | None = None
    read_bytes: StorageCount
    written_bytes: StorageCount
    erased_blocks: StorageCount
    scheduled_bytes: Size
    safety_bytes: Size
    copies_s: Interval
    wear: Wear


class DifferingValue(StrictModel):
    """A value that differs from the reference, and the steps after which it did, from 0."""

    tensor: str
    what: Observed
    steps: tuple[Size, ...]


class ValueCheck(StrictModel):
    """Checksums of all values that a schedule must preserve, compared with a reference.

    The reference ``against`` runs the same steps. ``values`` checksums are compared per step.
    """

    against: Reference
    values: Size
    steps: Size
    differing: tuple[DifferingValue, ...] = ()

    @property
    def identical(self) -> bool:
        """True if no value differs."""
        return not self.differing


class Responsible(StrictModel):
    """A part of the step that is responsible for its difference.

    ``what`` is a cost key, or that of an :class:`OtherTime`. ``excess_s`` is measured minus
    predicted time of all of it in a step. ``share`` is ``excess_s`` over the whole difference,
    negative if the part compensates for others.
    """

    what: str
    labels: tuple[str, ...]
    time_s: Comparison
    excess_s: float
    share: float


class Diagnosis(StrictModel):
    """Causes of the difference between predicted and measured step.

    ``responsible`` is empty if the difference is within the intervals. ``refine`` are the
    operations worth measuring again.
    """

    responsible: tuple[Responsible, ...]
    sentences: tuple[str, ...]
    refine: tuple[str, ...]


class Score(StrictModel):
    """Mean loss over samples, None if it is not finite, and a classifier's share of right ones."""

    loss: float | None
    accuracy: Annotated[float, Field(ge=0, le=1)] | None = None


class HeldOutScores(StrictModel):
    """Scores on samples that were not trained on, before the first and after the last step.

    ``left_out`` of the file's samples did not fill a batch.
    """

    file: str
    samples: Count
    left_out: Size
    evaluated_on: Literal["this computer"] = "this computer"
    before: Score
    after: Score


class ReplayReport(StrictModel):
    """Report of a replay.

    ``origin`` is the model, batch and profile of the schedule's graph. ``time_s`` is over ``steps``
    unwatched steps (over the watched ones if there are no others); ``watched_steps`` were measured
    action by action. ``trained_steps`` includes steps that something disturbed, which do not count;
    earlier versions do not state it. ``steps_before`` are those of earlier runs, with whose values
    this one began; absent if it began with initial values. ``predicted_energy_source`` is the
    profile's, ``measured_energy_source`` the replay's (on an emulated board, seconds are emulated
    too). ``energy_j`` is absent if no step has an energy; it is that of ``energy_steps`` steps
    together if too few are long enough for the meter. ``activity_energies`` are those of single
    operations, absent if the meter cannot give them. ``held_out`` is absent if nothing was
    evaluated. ``limits`` are sentences on what the figures do not cover.
    """

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
    trained_steps: Count | None = None
    steps_before: Count | None = None
    time_s: Comparison
    energy_j: Comparison | None = None
    energy_steps: Count | None = None
    memory: MemoryUse
    storage: StorageUse | None = None
    actions: tuple[ReplayedAction, ...]
    other: tuple[OtherTime, ...]
    values: tuple[ValueCheck, ...]
    diagnosis: Diagnosis
    power: PowerSamples | None = None
    activity_energies: ActivityEnergies | None = None
    unscheduled_s: Interval | None = None
    losses: tuple[float | None, ...] = ()
    held_out: HeldOutScores | None = None
    limits: tuple[str, ...] = ()

    @property
    def all_steps(self) -> int:
        """Number of steps that have changed the values, disturbed ones included."""
        return self.trained_steps or max(self.steps, len(self.losses))

    @property
    def held_actions(self) -> int:
        """Number of actions whose measured medians lie in their predicted intervals."""
        return sum(action.time_s.is_held for action in self.actions)

    @property
    def held_time(self) -> float:
        """Share of these actions in the measured time of all."""
        total_s = sum(action.time_s.measured.median for action in self.actions)
        held_s = sum(a.time_s.measured.median for a in self.actions if a.time_s.is_held)
        return held_s / total_s if total_s else 1.0

    @property
    def board_word(self) -> str:
        """Heading of the board's figures: those of an emulated board are not measured."""
        return board_word(self.measured_energy_source)


def board_word(source: EnergySource | None) -> str:
    """Word for the figures of a board whose joules have this source."""
    return "emulated" if source == "emulated" else "measured"

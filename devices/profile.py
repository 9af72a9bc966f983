"""DeviceProfile (``device-profile/1``): what every operation and every storage page costs on one
board, with confidence and provenance. Written by the profiler, read by the solver.

Energies are gross: all that the meter saw during the operation, idle included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from devices.documents.document import StrictModel
from devices.operation import OperationError, OpSpec
from devices.quantities import Count, Name, NonNegative, Positive, Size, WholeNumber

EnergySource: TypeAlias = Literal["measured", "estimated", "emulated", "published"]
CacheState: TypeAlias = Literal["warm", "cold"]
Matmul: TypeAlias = Literal["cblas", "in-tree"]
PowerInContext: TypeAlias = Literal["mean of the steps", "in isolation", "nominal"]


class Interval(StrictModel):
    """A median over blocks with its 95 % bootstrap confidence interval (percentile method, Efron
    and Tibshirani 1993). Where ``low == high == median`` there is no interval, only a figure."""

    median: NonNegative
    low: NonNegative
    high: NonNegative

    @model_validator(mode="after")
    def _ordered(self) -> Interval:
        if not self.low <= self.median <= self.high:
            raise ValueError(f"low {self.low} ≤ median {self.median} ≤ high {self.high} is needed")
        return self

    @classmethod
    def exact(cls, value: float) -> Interval:
        return cls(median=value, low=value, high=value)

    def scaled(self, factor: float) -> Interval:
        return Interval(median=self.median * factor, low=self.low * factor, high=self.high * factor)


class Cost(StrictModel):
    """Of one execution. ``energy_j`` is absent only if neither a meter nor a nominal power was
    there; such a profile serves time only."""

    time_s: Interval
    energy_j: Interval | None = None
    trials: Count
    void_trials: WholeNumber = 0


class ContextCost(Cost):
    """Of one execution among the others of a schedule, where what ran before decides what the
    caches hold. ``trials`` are training steps, each with so many ``executions`` of the operation;
    ``schedule`` says what of, ``run`` is the replay that had shown that its costs were wrong,
    ``measured`` when. No meter sees single operations of a step: joules are seconds at a
    ``power``, the mean one of those steps, or the operation's own in a loop of its own, or the
    board's nominal one."""

    executions: Count
    power: PowerInContext | None = None
    schedule: str
    run: str
    measured: str


class OperationCost(StrictModel):
    """``op`` is the key of an :class:`~devices.operation.OpSpec`. Warm: operands in cache from the
    execution before; cold: every operand last touched longer ago than the caches hold. In context:
    as :class:`ContextCost` says, where somebody asked for it."""

    op: str
    workspace_bytes: Size
    warm: Cost
    cold: Cost
    in_context: ContextCost | None = None

    @model_validator(mode="after")
    def _known(self) -> OperationCost:
        try:
            OpSpec.parse(self.op)
        except OperationError as error:
            raise ValueError(str(error)) from None
        return self

    def cost(self, basis: CacheState) -> Cost:
        """What one execution is expected to cost: as measured in context, or else in the cache
        state that the profile goes by."""
        return self.in_context or self.isolated(basis)

    def isolated(self, state: CacheState) -> Cost:
        """As measured in a loop of its own."""
        return self.warm if state == "warm" else self.cold


class SweepPoint(StrictModel):
    """One measured size of a storage sweep."""

    bytes: Count
    time_s: Interval
    energy_j: Interval | None = None


class AffinePageCost(StrictModel):
    """``fixed + per_page * ceil(bytes / page_bytes)``. ``fit_error`` is the root mean square of the
    relative residuals over the sweep; ``sweep`` holds the points that were fitted."""

    fixed_s: NonNegative
    per_page_s: NonNegative
    fixed_j: NonNegative | None = None
    per_page_j: NonNegative | None = None
    fit_error: NonNegative = 0.0
    sweep: tuple[SweepPoint, ...] = ()


class StorageCosts(StrictModel):
    """Of moving one tensor between RAM and the board's storage. ``dma`` repeats what the board's
    description says: transfers can run beside computing.

    Where storage must be erased before it is written, ``write`` is programming alone and ``erase``
    is per erase block. Tensors are taken to be written one behind the other, over block borders,
    each block being erased when the writing reaches it: a page then costs its share of erasing one
    block, however small the tensor is, and nothing is erased twice. This holds for what lives no
    longer than one time round the storage, as activations do and parameters that every step
    updates."""

    medium: str
    path: str | None = None
    dma: bool = False
    page_bytes: Count
    erase_block_bytes: Count | None = None
    method: str
    read: AffinePageCost
    write: AffinePageCost
    erase: AffinePageCost | None = None

    def pages(self, size_bytes: int) -> int:
        return math.ceil(size_bytes / self.page_bytes)

    def erased_blocks(self, size_bytes: int) -> float:
        """That writing a tensor uses up; 0 where nothing is erased."""
        if self.erase is None or self.erase_block_bytes is None:
            return 0.0
        return self.pages(size_bytes) * self.page_bytes / self.erase_block_bytes

    def read_cost(self, size_bytes: int) -> tuple[float, float | None]:
        """Seconds and joules (None if not known) of paging a tensor in."""
        return _affine(self.read, self.pages(size_bytes))

    def write_cost(self, size_bytes: int) -> tuple[float, float | None]:
        """Seconds and joules (None if not known) of paging a tensor out, its share of erasing
        included."""
        time_s, energy_j = _affine(self.write, self.pages(size_bytes))
        if self.erase is not None and self.erase_block_bytes is not None:
            blocks = self.erased_blocks(size_bytes)
            erase_s, erase_j = _affine(self.erase, 1)
            time_s += blocks * erase_s
            energy_j = None if energy_j is None or erase_j is None else energy_j + blocks * erase_j
        return time_s, energy_j


def _affine(cost: AffinePageCost, pages: int) -> tuple[float, float | None]:
    time_s = cost.fixed_s + cost.per_page_s * pages
    if cost.fixed_j is None or cost.per_page_j is None:
        return time_s, None
    return time_s, cost.fixed_j + cost.per_page_j * pages


class ComputeRates(StrictModel):
    """Published boards state rates in place of single costs: seconds are FLOP over ``flop_per_s``,
    joules FLOP over ``flop_per_j``, with the FLOP counts of :mod:`devices.published`."""

    flop_per_s: Positive
    flop_per_j: Positive


class BoardIdentity(StrictModel):
    """What the board said about itself; ``model`` and ``memory_bytes`` come from its data sheet in
    a published profile. ``cpu_frequency_hz`` is what was set while measuring. ``available_bytes``
    is the memory that was free for training then: the arena of a microcontroller's firmware, half
    of the free memory of a Linux board; absent where the board was not asked."""

    model: str
    memory_bytes: Count
    available_bytes: Count | None = None
    serial: str | None = None
    kernel: str | None = None
    cpu: str | None = None
    cores: Count | None = None
    governor: str | None = None
    cpu_frequency_hz: Positive | None = None
    last_level_cache_bytes: Size | None = None
    storage_card: str | None = None

    @property
    def usable_bytes(self) -> int:
        """Memory for training: all of the board's where the profile does not say what is free."""
        return self.memory_bytes if self.available_bytes is None else self.available_bytes


class Build(StrictModel):
    """Which code was measured. Replay refuses a kernel library with another hash. ``blas`` is what
    the library behind ``cblas`` says about itself."""

    kernels_sha256: str
    compiler: str
    flags: tuple[str, ...]
    matmul: str
    blas: str | None = None
    threads: Count


class MatmulComparison(StrictModel):
    """The same matrix products on the board, computed in-tree and by a BLAS in turns, in so many
    ``rounds``. Times are of the processor, for all products together; ``ratio`` is that of the BLAS
    over the in-tree one, round by round. ``library`` is what the BLAS says about itself."""

    library: str
    rounds: Count
    in_tree_s: Interval
    cblas_s: Interval
    ratio: Interval

    @property
    def faster(self) -> Matmul:
        """In-tree where the interval of the ratio leaves it open."""
        return "cblas" if self.ratio.high < 1 else "in-tree"

    @property
    def is_certain(self) -> bool:
        """True where one is faster by more than rounds differ."""
        return not self.ratio.low <= 1 <= self.ratio.high


class MeterRecord(StrictModel):
    """Which instrument the joules come from, how often it was read, and how its clock was tied to
    the board's; ``sync_uncertainty_s`` is by how much that can be wrong (half of a 95 %
    interval)."""

    kind: str
    detail: str
    rate_hz: Positive | None = None
    sync: str
    sync_uncertainty_s: NonNegative | None = None


class Additivity(StrictModel):
    """A whole training step against the sum of its operations, the test that costs may be added."""

    model: str
    step_s: Interval
    sum_warm_s: NonNegative
    sum_cold_s: NonNegative

    def ratio(self, state: CacheState) -> float:
        """Sum over step: 1 is perfect additivity."""
        total = self.sum_warm_s if state == "warm" else self.sum_cold_s
        return total / self.step_s.median


class ProfiledNetwork(StrictModel):
    """A network whose operations were measured: its name or file, the samples in a step, and how
    its parameters are updated."""

    model: Name
    batch: Count
    optimizer: Name


class DeviceProfile(StrictModel):
    """Costs of one board. ``networks`` are those that it was measured for, the first being that of
    the additivity check; files that were written before they were recorded have none."""

    end_marked: ClassVar[bool] = True

    schema_: Annotated[Literal["device-profile/1"], Field(alias="schema")] = "device-profile/1"
    name: str
    created: str | None = None
    energy_source: EnergySource
    meter: MeterRecord | None = None
    board: BoardIdentity
    build: Build | None = None
    networks: tuple[ProfiledNetwork, ...] = ()
    matmul_comparison: MatmulComparison | None = None
    idle_power_w: Interval | None = None
    cost_basis: CacheState = "cold"
    operations: tuple[OperationCost, ...] = ()
    rates: ComputeRates | None = None
    storage: StorageCosts | None = None
    additivity: Additivity | None = None
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _says_what_compute_costs(self) -> DeviceProfile:
        if not self.operations and self.rates is None:
            raise ValueError(
                "a profile needs operations or rates: nothing in it says what computing costs"
            )
        if self.energy_source == "measured" and self.meter is None:
            raise ValueError("energy_source is 'measured' but no meter is named")
        return self

    @cached_property
    def by_spec(self) -> Mapping[OpSpec, OperationCost]:
        return {OpSpec.parse(operation.op): operation for operation in self.operations}

    @property
    def refined(self) -> tuple[OperationCost, ...]:
        """Operations whose costs were measured in context, too."""
        return tuple(operation for operation in self.operations if operation.in_context)

    @property
    def cost_words(self) -> str:
        """Which of an operation's costs are used."""
        count = len(self.refined)
        return self.cost_basis + (f", in context for {count}" if count else "")

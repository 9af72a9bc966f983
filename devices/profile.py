"""DeviceProfile (``device-profile/1``): costs of operations and storage pages on one board.

Costs have confidence intervals and provenance. The profiler writes profiles, the solver reads them.
Energies are gross: all energy that the meter measured during the operation, idle power included.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from devices.documents.document import StrictModel
from devices.operation import Loss, OperationError, OpSpec
from devices.quantities import (
    Count,
    Fraction,
    Label,
    Name,
    NonNegative,
    Positive,
    Size,
    StatedSlices,
    WholeNumber,
)

EnergySource: TypeAlias = Literal["measured", "estimated", "emulated", "published"]
CacheState: TypeAlias = Literal["warm", "cold"]
Matmul: TypeAlias = Literal["cblas", "in-tree"]
PowerInContext: TypeAlias = Literal[
    "scaled to the steps", "mean of the steps", "in isolation", "nominal"
]
"""``mean of the steps`` is in profiles of earlier releases."""


class Interval(StrictModel):
    """A median with its 95 % interval.

    A cost's interval holds what one later sitting measures (:mod:`profiler.statistics`). Other
    intervals are confidence intervals of the median, by the percentile bootstrap. ``low == high ==
    median`` is a single figure without an interval. ``freedom``: degrees of freedom of Student's t,
    whose 95 % quantile is half of the interval on a logarithmic scale; absent where it is not.
    """

    median: NonNegative
    low: NonNegative
    high: NonNegative
    freedom: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Interval:
        if not self.low <= self.median <= self.high:
            raise ValueError(f"low {self.low} ≤ median {self.median} ≤ high {self.high} is needed")
        return self

    @property
    def is_exact(self) -> bool:
        """Whether it is a single figure without an interval."""
        return self.low == self.high

    @classmethod
    def exact(cls, value: float) -> Interval:
        """A figure without an interval."""
        return cls(median=value, low=value, high=value)

    @property
    def half_log(self) -> float:
        """Half of a positive interval on the logarithmic scale."""
        # The ratio of the ends may be too large for a number.
        return (math.log(self.high) - math.log(self.low)) / 2

    def scaled(self, factor: float) -> Interval:
        """Median and ends multiplied by ``factor``."""
        return Interval(
            median=self.median * factor,
            low=self.low * factor,
            high=self.high * factor,
            freedom=self.freedom,
        )


class Cost(StrictModel):
    """Cost of one execution.

    ``energy_j`` is absent only if the board has neither a meter nor a nominal power; such a profile
    has times only.
    """

    time_s: Interval
    energy_j: Interval | None = None
    trials: Count
    void_trials: WholeNumber = 0


class ContextCost(Cost):
    """Cost of one execution within a schedule, where earlier operations fill the caches.

    ``trials`` are training steps of ``schedule``, each with ``executions`` of the operation;
    ``run`` is the replay that showed the earlier cost to be wrong, ``measured`` the date. A meter
    cannot resolve single operations of a step, so joules are seconds × a ``power``: that of the
    operation measured in isolation, as it is or scaled so that the actions of these steps draw what
    the meter shows, or the board's nominal one.
    """

    executions: Count
    power: PowerInContext | None = None
    schedule: str
    run: str
    measured: str


class OperationCost(StrictModel):
    """Costs of one operation; ``op`` is the key of an :class:`~devices.operation.OpSpec`.

    ``warm``: operands are in cache from the previous execution. ``cold``: every operand has left
    the caches since its last use. ``in_context``: a :class:`ContextCost`, if one was requested.
    """

    op: Label
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
        """Expected cost of one execution: in context if measured, else in cache state ``basis``."""
        return self.in_context or self.isolated(basis)

    def isolated(self, state: CacheState) -> Cost:
        """Cost as measured in a loop of this operation alone."""
        return self.warm if state == "warm" else self.cold


class ProfiledNetwork(StrictModel):
    """A network whose operations were measured: name or file, samples in a step, and optimizer.

    ``loss`` was added to a file's network; ``train`` selected the trained parameters, and ``lora``
    added adapters. The step took its batch in ``accumulate`` parts, absent if in one. Weights and
    activations larger than ``slices`` were in parts; absent if all layers were whole. ``codecs``:
    the backward pass read codes of some activations.
    """

    model: Name
    batch: Count
    optimizer: Name
    loss: Loss | None = None
    train: tuple[Name, ...] | None = None
    accumulate: Annotated[int, Field(ge=2)] | None = None
    slices: StatedSlices | None = None
    codecs: Literal[True] | None = None
    lora: Name | None = None


class PlaceCost(StrictModel):
    """Time and energy of one op in its place of a training step.

    ``op`` is the op's name and ``key`` that of its operation. ``sittings_s`` has the seconds of one
    execution in each sitting that counts for ops: the mean over the op's executions in a step, of
    which the median over the steps. ``time_s`` is their median; its interval holds what one later
    sitting finds. ``lost`` is the share of the bytes of its operands that have left the caches
    since their last use, as their reuse distances say, and ``code_lost`` that of its kernel's
    instructions; ``overwrites`` says that its result takes the place of an operand, other than by
    itself. Earlier releases have none of them, or all but ``code_lost``; there, ``lost`` counts
    only what has left the largest cache.
    """

    op: Label
    key: Label
    time_s: Interval
    energy_j: Interval | None = None
    sittings_s: tuple[NonNegative, ...]
    lost: Fraction | None = None
    code_lost: Fraction | None = None
    overwrites: bool | None = None


class Sitting(StrictModel):
    """One process that ran ``steps`` watched steps of a schedule, with data of its own.

    ``page_in`` and ``page_out`` have two figures for each transfer of the schedule: the seconds
    that its law, fitted to transfers by themselves, gives, and those in a step (mean over the
    middle half of the steps by time; in earlier releases the median over all). ``only_transfers``
    says that the times of its ops do not count: its step differs from those of the other sittings.
    ``transfers_processor_s`` is the processor's time for the transfers of a step (mean over all
    steps); absent if the step transfers nothing, and in earlier releases.
    ``power_factor`` is the energy of a step over that of its actions by themselves (median over
    steps); absent if no energy was measured. Sittings with the same ``pause`` ran one after the
    other, in a pause of other measurements that began then; it is absent for one that ran at a time
    of its own, on microcontrollers, whose speed does not change with time, and in earlier releases.
    """

    schedule: str
    steps: Count
    measured: str
    pause: str | None = None
    page_in: tuple[tuple[Positive, NonNegative], ...] = ()
    page_out: tuple[tuple[Positive, NonNegative], ...] = ()
    transfers_processor_s: NonNegative | None = None
    only_transfers: bool = False
    power_factor: NonNegative | None = None


class PackedTensor(StrictModel):
    """Size that a tensor of a step has when it is packed: without its zeros, with a bitmap.

    ``bytes`` is the size of the whole tensor. ``runs_bytes`` has its packed size in each run:
    the mean over the run's steps. Each run had data and initial values of its own.
    ``packed_bytes`` is their median; its interval holds what one later run finds.
    """

    tensor: Label
    bytes: Count
    packed_bytes: Interval
    runs_bytes: tuple[NonNegative, ...]

    @model_validator(mode="after")
    def _at_most_whole(self) -> PackedTensor:
        if self.packed_bytes.high > self.bytes:
            raise ValueError(f"{self.tensor} has {self.bytes} bytes; packed, it cannot have more")
        if self.packed_bytes.low <= 0:
            raise ValueError(f"{self.tensor}: packed, something is left of it: a bitmap at least")
        return self


class StepCosts(StrictModel):
    """Costs of a network's ops in their places of its training step, from watched steps.

    Joules are seconds × a ``power``, as for :class:`ContextCost`. ``correlation`` is the mean
    correlation of two ops' deviations in seconds from one sitting to another.
    ``energy_correlation`` is that of the errors of their joules; absent where the power has no
    factor of the sittings, and in profiles of earlier releases: it is taken to be the same then.
    ``packed`` are tensors that are shorter without their zeros; none on boards that do not pack.
    """

    network: ProfiledNetwork
    sittings: tuple[Sitting, ...]
    power: PowerInContext | None = None
    correlation: Fraction
    energy_correlation: Fraction | None = None
    places: tuple[PlaceCost, ...]
    packed: tuple[PackedTensor, ...] = ()

    @property
    def sittings_of_ops(self) -> tuple[Sitting, ...]:
        """The sittings that count for ops. Values of a place are of the last ones of these."""
        return tuple(sitting for sitting in self.sittings if not sitting.only_transfers)

    @model_validator(mode="after")
    def _consistent(self) -> StepCosts:
        _require_single("places", (place.op for place in self.places))
        _require_single("packed tensors", (each.tensor for each in self.packed))
        most = len(self.sittings_of_ops)
        for place in self.places:
            if len(place.sittings_s) > most:
                raise ValueError(
                    f"{place.op} has values of {len(place.sittings_s)} sittings; {most} are stated"
                )
        return self


class SweepPoint(StrictModel):
    """One measured size of a storage sweep."""

    bytes: Count
    time_s: Interval
    energy_j: Interval | None = None


class AffinePageCost(StrictModel):
    """Cost of a transfer: ``fixed + per_page * ceil(bytes / page_bytes)``.

    ``fit_error`` is the root mean square of the relative residuals over the fitted points
    ``sweep``. ``in_steps`` is a factor for transfers within a training step: that of all that were
    watched together, and where that of a single one lies. It is absent if none were watched. What a
    transfer moves and checks is in other caches there, so that the part that grows with the pages
    takes longer by the share ``growth_in_steps``, besides the factor.
    """

    fixed_s: NonNegative
    per_page_s: NonNegative
    fixed_j: NonNegative | None = None
    per_page_j: NonNegative | None = None
    fit_error: NonNegative = 0.0
    sweep: tuple[SweepPoint, ...] = ()
    in_steps: Interval | None = None
    growth_in_steps: NonNegative = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> AffinePageCost:
        if (self.fixed_j is None) != (self.per_page_j is None):
            raise ValueError("fixed_j and per_page_j belong together: state both, or neither")
        _require_single("sweep points", (f"{point.bytes} bytes" for point in self.sweep))
        return self

    def alone(self, pages: int) -> tuple[float, float | None]:
        """Seconds and joules (None if unknown) of a transfer by itself."""
        time_s = self.fixed_s + self.per_page_s * pages
        if self.fixed_j is None or self.per_page_j is None:
            return time_s, None
        return time_s, self.fixed_j + self.per_page_j * pages

    def factor(self, alone_s: float) -> float:
        """Factor, within a training step, of a transfer that takes ``alone_s`` by itself."""
        return 1.0 if self.in_steps is None else self.in_steps.median * self.growth(alone_s)

    def growth(self, alone_s: float) -> float:
        """The part of :meth:`factor` that the caches add: more for larger transfers."""
        growing = max(0.0, 1.0 - self.fixed_s / alone_s) if alone_s else 0.0
        return 1.0 + self.growth_in_steps * growing


def processor_time_s(transfer_s: float, share: float | None, handover_s: float | None) -> float:
    """Seconds of the processor for a transfer of ``transfer_s`` beside ops: for handing it over,
    and for its share of the transfer. Never more than the transfer takes, which may run alone."""
    return min(transfer_s, (share or 0.0) * transfer_s + (handover_s or 0.0))


class StorageCosts(StrictModel):
    """Costs of paging one tensor between RAM and the board's storage.

    ``dma`` is from the board's description: transfers can run while the processor computes. So are
    ``capacity_bytes``, ``scratch_bytes`` and ``endurance_cycles``, from which the life of the
    medium follows; profiles of earlier releases lack them. ``processor_share`` is the share of a
    transfer's time within a step that it needs the processor, for its copies and checks; absent if
    none was watched. ``handover_s`` is the processor's time for handing a transfer to another
    thread, so that it runs beside ops; absent in earlier releases, and without DMA.

    If storage must be erased before it is written, ``write`` is programming alone and ``erase`` is
    per erase block. The model is that tensors are written one after the other, across block
    borders, and each block is erased when writing reaches it. A page then costs its share of
    erasing one block, however small the tensor is, and nothing is erased twice. This holds for
    tensors that live no longer than one pass through the storage, such as activations, and
    parameters that every step updates.
    """

    medium: str
    path: str | None = None
    dma: bool = False
    page_bytes: Count
    erase_block_bytes: Count | None = None
    capacity_bytes: Count | None = None
    scratch_bytes: Count | None = None
    endurance_cycles: Count | None = None
    method: str
    read: AffinePageCost
    write: AffinePageCost
    erase: AffinePageCost | None = None
    processor_share: Fraction | None = None
    handover_s: NonNegative | None = None

    @model_validator(mode="after")
    def _erases_blocks(self) -> StorageCosts:
        if (self.erase is None) != (self.erase_block_bytes is None):
            raise ValueError(
                "erase, the cost of erasing a block, and erase_block_bytes, its size, belong"
                " together: state both, or neither"
            )
        return self

    @property
    def share_beside_ops(self) -> float | None:
        """The processor's share of the time of a transfer that runs beside ops; None if unknown."""
        return self.processor_share if self.dma else None

    @property
    def handover_beside_ops_s(self) -> float | None:
        """The processor's seconds for handing over a transfer beside ops; None if unknown."""
        return self.handover_s if self.dma else None

    def processor_time_s(self, transfer_s: float) -> float:
        """Seconds of the processor for a transfer of so many seconds beside ops."""
        return processor_time_s(transfer_s, self.share_beside_ops, self.handover_beside_ops_s)

    @property
    def packs(self) -> bool:
        """Whether a transfer may leave out the zeros of its tensor.

        They are left out in the tensor's own memory. With DMA, an op might read it meanwhile.
        """
        return not self.dma

    def pages(self, size_bytes: int) -> int:
        """Pages that a tensor of this size occupies."""
        return math.ceil(size_bytes / self.page_bytes)

    def erased_blocks(self, size_bytes: int) -> float:
        """Erase blocks used by writing a tensor, as a fraction; 0 if nothing is erased."""
        if self.erase is None or self.erase_block_bytes is None:
            return 0.0
        return self.pages(size_bytes) * self.page_bytes / self.erase_block_bytes

    def read_cost(self, size_bytes: int) -> tuple[float, float | None]:
        """Seconds and joules (None if unknown) of paging a tensor in, within a training step."""
        return _within_step(self.read, self.read.alone(self.pages(size_bytes)))

    def write_cost(self, size_bytes: int) -> tuple[float, float | None]:
        """Seconds and joules (None if unknown) of paging a tensor out, within a training step.

        Erasing is included.
        """
        time_s, energy_j = self.write.alone(self.pages(size_bytes))
        if self.erase is not None and self.erase_block_bytes is not None:
            blocks = self.erased_blocks(size_bytes)
            erase_s, erase_j = self.erase.alone(1)
            time_s += blocks * erase_s
            energy_j = None if energy_j is None or erase_j is None else energy_j + blocks * erase_j
        return _within_step(self.write, (time_s, energy_j))


def _within_step(
    law: AffinePageCost, alone: tuple[float, float | None]
) -> tuple[float, float | None]:
    time_s, energy_j = alone
    factor = law.factor(time_s)
    return factor * time_s, None if energy_j is None else factor * energy_j


class ComputeRates(StrictModel):
    """Rates of a published profile, in place of costs of operations.

    Seconds are FLOP / ``flop_per_s``, joules FLOP / ``flop_per_j``, with the FLOP counts of
    :mod:`devices.published`. ``tiles`` says in which tiles the kernels of this project work on the
    board, and so how much workspace they need: the small ones of microcontrollers, or large ones.
    Without it, operations have no workspace.
    """

    flop_per_s: Positive
    flop_per_j: Positive
    tiles: Literal["small", "large"] | None = None


class BoardIdentity(StrictModel):
    """Identity of a board, read from it.

    In a published profile, ``model`` and ``memory_bytes`` are from the data sheet.
    ``cpu_frequency_hz`` was set while measuring. ``available_bytes`` is the memory that was
    available for training then: the arena of a microcontroller's firmware, or half of the free
    memory of a Linux board; absent if it was not read from the board. ``shares_ram`` is true if the
    program keeps what it records about a plan in that memory too, as a microcontroller's does.
    """

    model: str
    memory_bytes: Count
    available_bytes: Count | None = None
    shares_ram: bool | None = None
    serial: str | None = None
    kernel: str | None = None
    cpu: str | None = None
    cores: Count | None = None
    governor: str | None = None
    cpu_frequency_hz: Positive | None = None
    last_level_cache_bytes: Size | None = None
    storage_card: str | None = None

    @property
    def lasting(self) -> BoardIdentity:
        """The identity without what differs from run to run: frequency and available memory."""
        return self.model_copy(update={"cpu_frequency_hz": None, "available_bytes": None})

    @property
    def usable_bytes(self) -> int:
        """Memory for training: all of the board's if ``available_bytes`` is absent."""
        return self.memory_bytes if self.available_bytes is None else self.available_bytes


class Build(StrictModel):
    """Identity of the measured code; replay refuses a kernel library with another hash.

    ``blas`` is the version string of the library that provides ``cblas``.
    """

    kernels_sha256: str
    compiler: str
    flags: tuple[str, ...]
    matmul: str
    blas: str | None = None
    threads: Count

    @property
    def parts_keep_bits(self) -> bool:
        """Whether an operation in parts (``devices.signatures.parts``) has the whole one's bits.

        A BLAS promises no order of its sums.
        """
        return self.matmul == "in-tree"


class MatmulComparison(StrictModel):
    """Times of the same matrix products on the board, in-tree and by a BLAS, alternating.

    Times are of the processor, for all products together, over ``rounds``. ``ratio`` is BLAS over
    in-tree time, round by round. ``library`` is the BLAS's version string.
    """

    library: str
    rounds: Count
    in_tree_s: Interval
    cblas_s: Interval
    ratio: Interval

    @property
    def faster(self) -> Matmul:
        """The faster implementation; in-tree if the interval of the ratio does not decide."""
        return "cblas" if self.ratio.high < 1 else "in-tree"

    @property
    def is_certain(self) -> bool:
        """True if the interval of the ratio excludes 1."""
        return not self.ratio.low <= 1 <= self.ratio.high


class MeterRecord(StrictModel):
    """Instrument that measured the joules, its rate, and how its clock was tied to the board's.

    ``sync_uncertainty_s`` is half of a 95 % interval of the clocks' offset. The oldest power in a
    reading is ``remembered_s`` old; absent where that is not known.
    """

    kind: str
    detail: str
    rate_hz: Positive | None = None
    sync: str
    sync_uncertainty_s: NonNegative | None = None
    remembered_s: NonNegative | None = None


class Additivity(StrictModel):
    """Time of a whole training step and sum of its operations: a check that costs add up."""

    model: str
    step_s: Interval
    sum_warm_s: NonNegative
    sum_cold_s: NonNegative

    @model_validator(mode="after")
    def _takes_time(self) -> Additivity:
        if not self.step_s.median:
            raise ValueError("step_s: found a median of 0; a step takes time")
        return self

    def ratio(self, state: CacheState) -> float:
        """Sum of the operations over the step's time; 1 is perfect additivity."""
        total = self.sum_warm_s if state == "warm" else self.sum_cold_s
        return total / self.step_s.median


class GeneralSweep(StrictModel):
    """Sweep of shapes that networks use, from which the costs of any network are predicted.

    ``operations`` of the profile were drawn with ``seed`` and measured in ``rounds``, the later of
    them where predictions were least sure, in ``measured_s`` seconds of the ``limit_s``.
    """

    operations: Count
    rounds: Count
    limit_s: Positive
    measured_s: NonNegative
    seed: WholeNumber


class DeviceProfile(StrictModel):
    """Costs of one board.

    ``networks`` are those whose operations were measured; the first one is that of the additivity
    check. Files from before networks were recorded have none. ``step_costs`` are of networks whose
    training steps were watched, action by action. ``general`` describes the sweep of a profile for
    any network.
    """

    end_marked: ClassVar[bool] = True

    schema_: Annotated[Literal["device-profile/1"], Field(alias="schema")] = "device-profile/1"
    name: Label
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
    step_costs: tuple[StepCosts, ...] = ()
    general: GeneralSweep | None = None
    rates: ComputeRates | None = None
    storage: StorageCosts | None = None
    additivity: Additivity | None = None
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _says_what_compute_costs(self) -> DeviceProfile:
        if not self.operations and self.rates is None:
            raise ValueError(
                "a profile needs operations or rates: it has no costs of computing otherwise"
            )
        if self.energy_source == "measured" and self.meter is None:
            raise ValueError("energy_source 'measured' needs a meter, which is missing")
        _require_single("operations", (spec.key for spec in map(_spec, self.operations)))
        networks = (step.network.model_dump_json(exclude_none=True) for step in self.step_costs)
        _require_single("step_costs", networks)
        return self

    def changed(self, **fields: object) -> DeviceProfile:
        """The profile with other values of some fields; ``model_copy`` would copy its caches."""
        kept = {name: getattr(self, name) for name in type(self).model_fields if name != "schema_"}
        return DeviceProfile.model_validate({**kept, **fields})

    @cached_property
    def by_spec(self) -> Mapping[OpSpec, OperationCost]:
        """Costs by operation."""
        return {_spec(operation): operation for operation in self.operations}

    @cached_property
    def place(self) -> Mapping[tuple[str, str], PlaceCost]:
        """Costs in places of watched steps, by op and key of the operation."""
        return {(place.op, place.key): place for step in self.step_costs for place in step.places}

    @cached_property
    def packed(self) -> Mapping[tuple[str, int], PackedTensor]:
        """Sizes of packed tensors, by name and size of the whole tensor.

        Like costs in places, they also count for another network that has such a tensor.
        """
        return {(each.tensor, each.bytes): each for step in self.step_costs for each in step.packed}

    @cached_property
    def elsewhere(self) -> Mapping[str, PlaceCost]:
        """Cost of an operation in a place that was not watched, by key: that of any watched place.

        Its interval spans those of all places.
        """
        places: dict[str, list[PlaceCost]] = {}
        for place in self.place.values():
            places.setdefault(place.key, []).append(place)
        return {key: _of_any(own) for key, own in places.items()}

    @property
    def stores_in_raw_flash(self) -> bool:
        """Whether the storage is raw flash of a Linux board, which a schedule cannot page to."""
        is_erased = self.storage is not None and self.storage.erase is not None
        return is_erased and self.board.shares_ram is None  # microcontrollers state it

    @property
    def refined(self) -> tuple[OperationCost, ...]:
        """Operations whose costs were also measured in context."""
        return tuple(operation for operation in self.operations if operation.in_context)

    @property
    def cost_words(self) -> str:
        """Description of the costs in use: the cache state, and how many are in context."""
        return self._words(len({operation.op for operation in self.refined} | set(self.elsewhere)))

    @property
    def operation_words(self) -> str:
        """Description of the costs of operations by themselves or refined, without places."""
        return self._words(len(self.refined))

    def _words(self, in_context: int) -> str:
        return self.cost_basis + (f", in context for {in_context}" if in_context else "")


def _spec(operation: OperationCost) -> OpSpec:
    return OpSpec.parse(operation.op)


def _require_single(what: str, names: Iterable[str]) -> None:
    """Refuse entries of one name: it would be chance which of them counts."""
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"{what}: {name} is listed {times} times; allowed: once")


def _of_any(places: Sequence[PlaceCost]) -> PlaceCost:
    middle = sorted(places, key=lambda place: place.time_s.median)[(len(places) - 1) // 2]
    energies = [place.energy_j for place in places if place.energy_j is not None]
    return PlaceCost(
        op=middle.op,
        key=middle.key,
        time_s=_spanning(middle.time_s, [place.time_s for place in places]),
        energy_j=None if middle.energy_j is None else _spanning(middle.energy_j, energies),
        sittings_s=middle.sittings_s,
    )


def _spanning(middle: Interval, others: Sequence[Interval]) -> Interval:
    return Interval(
        median=middle.median,
        low=min(interval.low for interval in others),
        high=max(interval.high for interval in others),
    )

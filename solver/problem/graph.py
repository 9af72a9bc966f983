"""CostedGraph (``costed-graph/1``): the scheduling problem without the budget.

Operations are in a valid execution order. A tensor is written by at most one operation. A tensor
that no operation writes exists when the step begins, in RAM or in storage (its *home*). It is an
input, a parameter or optimizer state, or it states its home; an activation or a gradient that
nothing writes is a mistake otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, model_validator

from devices.documents.document import StrictModel
from devices.operation import Loss, Phase
from devices.profile import processor_time_s
from devices.quantities import (
    MOST_BYTES,
    Count,
    Fraction,
    Label,
    Line,
    Size,
    StatedSlices,
    UnitCost,
)
from networks.kinds import Optimizer, Place, TensorKind

_SOURCES: frozenset[TensorKind] = frozenset({"input", "parameter", "optimizer_state"})
"""Kinds of tensors that exist when the step begins, in RAM unless their home says otherwise."""


class PageCost(StrictModel):
    """Cost of moving one tensor once between RAM and storage.

    Intervals, here and below, are those of the profile (95 %), absent if it states none.
    """

    time_s: UnitCost
    energy_j: UnitCost
    time_s_interval: tuple[UnitCost, UnitCost] | None = None
    energy_j_interval: tuple[UnitCost, UnitCost] | None = None


class Op(StrictModel):
    """An operation with its cost.

    Attributes:
        name: Unique name.
        kind: Kind of operation, such as ``conv``.
        phase: Forward, backward or update.
        reads: Names of the tensors that it reads.
        writes: Names of the tensors that it writes.
        time_s: Time of one execution.
        energy_j: Energy of one execution.
        workspace_bytes: Scratch memory during execution.
        recomputable: Whether it may be executed more than once.
        in_place: Written tensors, with the tensors read whose bytes they take over.
        time_s_interval: 95 % interval of the time, if known.
        energy_j_interval: 95 % interval of the energy, if known.
        cost_key: Name of the measured operation; ops with the same key share one measurement.
    """

    name: Label
    kind: Label
    phase: Phase
    reads: tuple[Label, ...]
    writes: tuple[Label, ...]
    time_s: UnitCost
    energy_j: UnitCost
    workspace_bytes: Size = 0
    recomputable: bool = True
    in_place: Mapping[Label, Label] = Field(default_factory=dict)
    time_s_interval: tuple[UnitCost, UnitCost] | None = None
    energy_j_interval: tuple[UnitCost, UnitCost] | None = None
    cost_key: Label | None = None


class Tensor(StrictModel):
    """A tensor of the graph.

    Attributes:
        name: Unique name.
        bytes: Size.
        kind: Parameter, gradient, activation and so on.
        home: Where a tensor that no op writes is when the step begins; RAM if absent.
        persist: Where the tensor must be when the step ends, if anywhere.
        page_out: Cost of one page-out; absent if it cannot be paged out.
        page_in: Cost of one page-in; absent if it cannot be paged in.
        packed_bytes: Bytes that a page-out is expected to write, if it leaves out zeros; the costs
            of both transfers are those of packing and of so many bytes.
    """

    name: Label
    bytes: Size
    kind: TensorKind
    home: Place | None = None
    persist: Place | None = None
    page_out: PageCost | None = None
    page_in: PageCost | None = None
    packed_bytes: Count | None = None

    @property
    def stored_bytes(self) -> int:
        """Bytes of the tensor that a page-out is expected to write."""
        return self.bytes if self.packed_bytes is None else self.packed_bytes


class Origin(StrictModel):
    """The training step and the profile that a graph was made from.

    ``model`` is the name of a built-in network, or the path of a file whose hash is
    ``model_sha256``. ``loss`` was added to it, ``train`` selected the trained parameters, and
    ``lora`` added adapters. ``accumulate`` is the number of parts of the batch; if it is one, it is
    absent. ``slices`` are the most bytes of a weight in a part, and of an activation;
    absent if all layers are whole. ``codecs``: the backward pass reads codes of some activations.
    ``kernels_sha256`` and ``matmul`` identify the measured kernels;
    they are absent if the costs are published figures, which belong to no particular kernels.
    """

    model: Line
    model_sha256: str | None = None
    loss: Loss | None = None
    train: tuple[Line, ...] | None = None
    lora: Line | None = None
    batch: Count
    accumulate: Annotated[int, Field(ge=2)] | None = None
    slices: StatedSlices | None = None
    codecs: Literal[True] | None = None
    optimizer: Optimizer
    parameters_in: Place
    profile: str
    kernels_sha256: str | None = None
    matmul: str | None = None

    @property
    def stated(self) -> dict[str, str | int | None]:
        """The origin as a report states it, without what only some networks have."""
        rare = {"model_sha256", "loss", "train", "lora", "accumulate", "slices", "codecs"}
        absent = {name for name in rare if getattr(self, name) is None}
        stated = self.model_dump(exclude=absent)
        return stated if self.train is None else stated | {"train": ", ".join(self.train)}


class CostedGraph(StrictModel):
    """Operations and tensors of one training step, with the costs of computing and paging.

    Attributes:
        name: Name of the graph.
        origin: Training step and profile; absent in graphs from elsewhere, which can be solved but
            not run.
        energy_source: Source of the energies, as the profile states it.
        asynchronous_transfers: Whether the storage has DMA, so that a transfer can run beside ops,
            one at a time.
        processor_share: Share of such a transfer's time for which it takes the processor, from when
            it is handed over; absent if it takes none.
        handover_s: Seconds of the processor for handing it over, besides; absent if that takes
            none.
        error_correlation: Mean correlation of the errors of two ops' costs; absent if they are
            taken for independent.
        energy_error_correlation: That of the errors of their joules; absent if it is the same.
        unconstrained_peak_bytes: Informative only; this project recomputes it.
        floor_bytes: Informative only; this project recomputes it.
        notes: Remarks on the costs.
        ops: Operations in a valid execution order.
        tensors: All tensors that they read and write.
    """

    schema_: Annotated[Literal["costed-graph/1"], Field(alias="schema")] = "costed-graph/1"
    name: Label
    origin: Origin | None = None
    energy_source: Literal["measured", "estimated", "emulated", "published"] | None = None
    asynchronous_transfers: bool = False
    processor_share: Fraction | None = None
    handover_s: UnitCost | None = None
    error_correlation: Fraction | None = None
    energy_error_correlation: Fraction | None = None
    unconstrained_peak_bytes: Size | None = None
    floor_bytes: Size | None = None
    notes: tuple[str, ...] = ()
    ops: Annotated[tuple[Op, ...], Field(min_length=1)]
    tensors: tuple[Tensor, ...]

    @model_validator(mode="after")
    def _consistent(self) -> CostedGraph:
        problems = list(_inconsistencies(self))
        if problems:
            raise ValueError("; ".join(problems[:5]))
        return self

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Names of the ops, in order."""
        return tuple(op.name for op in self.ops)

    def in_order(self, names: Sequence[str]) -> CostedGraph:
        """The same graph with its ops in another order, which their reads must allow."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        ops = {op.name: op for op in self.ops}
        return CostedGraph(**{**fields, "ops": tuple(ops[name] for name in names)})

    def with_model_at(self, model: str, sha256: str | None) -> CostedGraph:
        """The same graph with its network's file in another place.

        Args:
            model: Path of a file there.
            sha256: Hash of that file; None for a built-in network.

        Returns:
            The graph as it is if its network is not from a file with that content.
        """
        origin = self.origin
        if origin is None or origin.model_sha256 is None or origin.model_sha256 != sha256:
            return self
        return self.model_copy(update={"origin": origin.model_copy(update={"model": model})})

    @property
    def share_of_processor(self) -> float:
        """Processor's share of the time of a transfer beside ops; 0 if none is stated."""
        return self.processor_share or 0.0

    def processor_time_s(self, transfer_s: float) -> float:
        """Seconds of the processor for a transfer of so many seconds beside ops.

        They are never more than these: where handing over takes too long, the transfer runs alone.
        """
        return processor_time_s(transfer_s, self.processor_share, self.handover_s)

    @property
    def correlation_of_times(self) -> float:
        """Correlation of the errors of two ops' seconds; 0 if the graph states none."""
        return self.error_correlation or 0.0

    @property
    def correlation_of_energies(self) -> float:
        """Correlation of the errors of two ops' joules; 0 if the graph states none."""
        stated = self.energy_error_correlation
        return self.correlation_of_times if stated is None else stated

    @property
    def sha256(self) -> str:
        """Hash of the whole document; not cached, since a changed copy would keep it."""
        content = self.model_dump_json(by_alias=True, exclude_none=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def tensor(self) -> Mapping[str, Tensor]:
        """Tensors by name."""
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def producer(self) -> Mapping[str, int]:
        """Index of the op that writes each tensor; absent for a tensor that no op writes."""
        return {name: index for index, op in enumerate(self.ops) for name in op.writes}

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the ops that read each tensor, ascending."""
        found: dict[str, list[int]] = {tensor.name: [] for tensor in self.tensors}
        for index, op in enumerate(self.ops):
            for name in dict.fromkeys(op.reads):
                found[name].append(index)
        return {name: tuple(indices) for name, indices in found.items()}


def _inconsistencies(graph: CostedGraph) -> Iterator[str]:
    """Messages about contradictions in ``graph``."""
    names = [tensor.name for tensor in graph.tensors]
    if len(set(names)) != len(names):
        yield f"tensor {_repeated(names)!r} is listed twice"
    total_bytes = sum(tensor.bytes for tensor in graph.tensors)
    if total_bytes > MOST_BYTES:
        yield f"the tensors have {total_bytes} bytes in all; allowed: {MOST_BYTES}"
    for tensor in graph.tensors:
        if tensor.stored_bytes > tensor.bytes:
            yield (
                f"tensor {tensor.name!r} has {tensor.bytes} bytes; its {tensor.stored_bytes}"
                " packed_bytes are more"
            )
    largest = max(graph.ops, key=lambda op: op.workspace_bytes)
    if largest.workspace_bytes > MOST_BYTES:
        yield (
            f"op {largest.name!r}: found {largest.workspace_bytes} workspace_bytes; allowed:"
            f" {MOST_BYTES}"
        )
    op_names = [op.name for op in graph.ops]
    if len(set(op_names)) != len(op_names):
        yield f"op {_repeated(op_names)!r} is listed twice"
    known = set(names)
    writer: dict[str, str] = {}
    for op in graph.ops:
        for name in op.writes:
            if name in writer:
                yield f"tensor {name!r} is written by both {writer[name]!r} and {op.name!r}"
            writer.setdefault(name, op.name)
    for op in graph.ops:
        for name in (*op.reads, *op.writes):
            if name not in known:
                yield f"op {op.name!r} names tensor {name!r}, which is not listed"
        writes, reads = set(op.writes), set(op.reads)
        for written, read in op.in_place.items():
            if written not in writes or read not in reads:
                yield (
                    f"op {op.name!r}: in_place {written!r}: {read!r} is not a tensor that it"
                    " writes and one that it reads"
                )
        taken = list(op.in_place.values())
        if len(set(taken)) != len(taken):
            yield f"op {op.name!r}: in_place reuses the bytes of {_repeated(taken)!r} twice"
    done: set[str] = set(known) - set(writer)
    overwriter: dict[str, str] = {}
    for op in graph.ops:
        for name in op.reads:
            if name in writer and name not in done:
                yield f"op {op.name!r} reads {name!r} before op {writer[name]!r} writes it"
            if name in overwriter:
                yield (
                    f"op {op.name!r} reads {name!r} after op {overwriter[name]!r} wrote over it in"
                    " place"
                )
        done.update(op.writes)
        overwriter.update(dict.fromkeys(op.in_place.values(), op.name))
    for tensor in graph.tensors:
        if tensor.name not in writer and tensor.home is None and tensor.kind not in _SOURCES:
            reader = next((op.name for op in graph.ops if tensor.name in op.reads), None)
            article = "an" if tensor.kind == "activation" else "a"
            yield (
                f"tensor {tensor.name!r} is {article} {tensor.kind} that no op writes"
                + ("" if reader is None else f", but op {reader!r} reads it")
                + ": list it in the writes of an op, or state its home (ram or storage) if it"
                " exists when the step begins"
            )
        if tensor.home is not None and tensor.name in writer:
            yield f"tensor {tensor.name!r} has a home but is written by op {writer[tensor.name]!r}"
        if tensor.home == "storage" and tensor.page_in is None:
            yield f"tensor {tensor.name!r} has its home in storage but has no page_in cost"
        if tensor.persist == "ram" and tensor.name in overwriter:
            yield (
                f"tensor {tensor.name!r} must persist in RAM but op {overwriter[tensor.name]!r}"
                " writes over it in place"
            )
        if tensor.persist == "storage" and tensor.home != "storage" and tensor.page_out is None:
            yield f"tensor {tensor.name!r} must persist in storage but has no page_out cost"


def _repeated(names: list[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name is repeated")
